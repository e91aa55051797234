//! Lines about weights and shares.

use io_starve::model::observation::*;

use super::parse::*;

/// `weight /a.slice io=500 [bfq=300] [on=8:0] [class=idle]`: `on` makes them those of one disk.
pub fn weight(words: &[&str]) -> Result<Fact, String> {
    let [path, opts @ ..] = words else {
        return Err("weight PATH io=N".to_owned());
    };
    let opts = Opts::parse(opts, &["io", "bfq", "on", "class"], &[])?;
    let on = opts.get("on").map(dev_of).transpose()?;
    let file = |name: &str| -> Result<Option<WeightFile>, String> {
        let Some(n) = opts.number(name)? else {
            return Ok(None);
        };
        let n = u32::try_from(n).map_err(|e| e.to_string())?;
        Ok(Some(WeightFile {
            default: if on.is_some() { 100 } else { n },
            disks: on.map(|dev| (dev, n)).into_iter().collect(),
        }))
    };
    Ok(Fact::Weights(WeightFact {
        path: (*path).to_owned(),
        io: file("io")?,
        bfq: file("bfq")?,
        prio_class: opts.get("class").map(str::to_owned),
        latency: Vec::new(),
    }))
}

/// Something about shares; figures are per cent of a tick.
pub enum Shares {
    Clock {
        dev: DevId,
        busy: u64,
        idle_waited: u64,
    },
    Service {
        dev: DevId,
        owner: Owner,
        /// In the device, group wait, active, unsatisfied, waited while idle.
        times: [u64; 5],
    },
}

/// `clock DISK busy=98 [idle-waited=1]` and `serve OWNER device=40 [waits=95] [active=100] [group-wait=50] [idle=2] [dev=8:0]`, in per
/// cent of the time. Who is active all the time is so unless said otherwise.
pub fn shares(words: &[&str], first: Option<DevId>) -> Result<Option<Shares>, String> {
    let percent = |opts: &Opts, name: &str, usual: u64| -> Result<u64, String> {
        let n = opts.number(name)?.unwrap_or(usual);
        if n > 100 {
            return Err(format!("{name}={n} is above 100 %"));
        }
        Ok(n)
    };
    Ok(Some(match words {
        ["clock", dev, opts @ ..] => {
            let opts = Opts::parse(opts, &["busy", "idle-waited"], &[])?;
            Shares::Clock {
                dev: dev_of(dev)?,
                busy: percent(&opts, "busy", 0)?,
                idle_waited: percent(&opts, "idle-waited", 0)?,
            }
        }
        ["serve", owner, opts @ ..] => {
            let allowed = ["device", "group-wait", "active", "waits", "idle", "dev"];
            let opts = Opts::parse(opts, &allowed, &[])?;
            Shares::Service {
                dev: match opts.get("dev") {
                    Some(dev) => dev_of(dev)?,
                    None => first.ok_or("no device before this line")?,
                },
                owner: owner_of(owner)?,
                times: [
                    percent(&opts, "device", 0)?,
                    percent(&opts, "group-wait", 0)?,
                    percent(&opts, "active", 100)?,
                    percent(&opts, "waits", 0)?,
                    percent(&opts, "idle", 0)?,
                ],
            }
        }
        _ => return Ok(None),
    }))
}

impl Shares {
    /// What they are in a tick.
    pub fn tell(&self, o: &mut Observation, tick_ns: u64) {
        let of = |percent: u64| tick_ns * percent / 100;
        match self {
            Shares::Clock {
                dev,
                busy,
                idle_waited,
            } => o.clocks.push(ClockDelta {
                dev: *dev,
                busy_ns: of(*busy),
                idle_ns: of(100 - busy),
                idle_waited_ns: of(*idle_waited),
                missed: 0,
            }),
            Shares::Service { dev, owner, times } => {
                let [device, group_wait, active, waits, idle] = times.map(of);
                o.services.push(ServiceDelta {
                    dev: *dev,
                    owner: *owner,
                    times: Times {
                        device_ns: device,
                        group_wait_ns: group_wait,
                        active_ns: active,
                        unsatisfied_ns: waits,
                        idle_waited_ns: idle,
                    },
                });
            }
        }
    }
}
