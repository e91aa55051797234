//! The first page: findings, the selected one in short with what to do, who waited for whom, disks.

use ratatui::text::Line;

use super::{Screen, blame, details, device, devices, findings, part::Part, times};

/// The page.
pub fn page(screen: &Screen<'_>, width: usize, room: usize) -> Part {
    let bars = room >= 12;
    let disks = screen.snap.devices.len().min(3);
    let mut out = findings::list(screen, width, (room / 4).max(2), bars);
    if room >= 12 {
        let mut pane = details::selected(screen, width);
        pane.truncate(match room {
            26.. => room / 3,
            15.. => 5,
            _ => 4,
        });
        out.extend(pane);
    }
    let left = room.saturating_sub(out.len());
    // A bar, a head and the first disks stay in sight.
    let rows = left.saturating_sub(2 + disks + 1).min(room / 5);
    if room >= 15 {
        out.extend(blame::table(screen, width, rows));
    }
    let left = room.saturating_sub(out.len());
    let devices = devices::table(screen, width, left, bars);
    out.page = devices.page;
    out.append(devices);
    let left = room.saturating_sub(out.len());
    out.extend(more(screen, width, left));
    out
}

/// Of the disk of what is selected, as much as the page has room for: times by class, and how they moved.
fn more(screen: &Screen<'_>, width: usize, room: usize) -> Vec<Line<'static>> {
    let Some(disk) = screen.app.device() else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let title = format!("{}: times of the last 10 s", screen.safe(&disk.name));
    let stages = device::stages(screen, disk, width, usize::MAX);
    if stages.len() < room {
        out.push(screen.bar(&title, "Enter on the disk: more", width));
        out.extend(stages);
    }
    let heat = times::heat(screen, disk, width);
    if out.len() + heat.len() <= room {
        out.extend(heat);
    }
    out
}
