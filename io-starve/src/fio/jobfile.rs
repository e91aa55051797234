//! fio's job files: sections of options, as far as jobs have to be named when fio could not say anything itself.

use std::collections::BTreeMap;

/// One section of a job file, with the global options before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its options; the value of one that has none is empty.
    pub options: BTreeMap<String, String>,
}

/// The jobs of a file. Lines that make no sense are left out: fio itself says what is wrong with them.
pub fn parse(text: &str) -> Vec<Section> {
    let mut global = BTreeMap::new();
    let mut jobs: Vec<Section> = Vec::new();
    let mut in_global = false;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            in_global = name.trim() == "global";
            if !in_global {
                jobs.push(Section {
                    name: name.trim().to_owned(),
                    options: global.clone(),
                });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let options = match jobs.last_mut() {
            _ if in_global => &mut global,
            Some(job) => &mut job.options,
            None => continue,
        };
        options.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_global_options_before_them() {
        let jobs = parse(
            "; the report of 2017\n[global]\nbs=4k\nrw = randwrite\ngroup_reporting\n\n[cfq_a]\ncgroup=cfq_a\nrw=read\n\
             [global]\nrate=4m\n# another\n[cfq_b]\nnew_group\n",
        );
        let names: Vec<_> = jobs.iter().map(|j| j.name.as_str()).collect();
        assert_eq!(names, ["cfq_a", "cfq_b"]);
        let option = |job: usize, key: &str| jobs[job].options.get(key).map(String::as_str);
        assert_eq!(option(0, "rw"), Some("read"));
        assert_eq!(option(0, "cgroup"), Some("cfq_a"));
        assert_eq!(option(0, "rate"), None);
        assert_eq!(option(1, "rw"), Some("randwrite"));
        assert_eq!(option(1, "rate"), Some("4m"));
        assert_eq!(option(1, "new_group"), Some(""));
    }

    #[test]
    fn what_is_no_job_file_has_no_jobs() {
        assert_eq!(parse("rw=read\nnonsense"), []);
        assert_eq!(parse(""), []);
    }
}
