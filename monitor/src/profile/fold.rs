//! Records of a profile sorted by the process they are of; what they say is for [`super::tables`].

use std::collections::HashMap;
use std::path::Path;

use super::error::ProfileError;
use super::frame::{self, Decoded, PREAMBLE, Preamble};
use super::reader::Profile;
use super::tables::Tables;
use super::types::Record;

/// A profile under construction.
#[derive(Default)]
pub(super) struct Fold {
    /// Tables by process, the first process's first.
    processes: Vec<Tables>,
    /// Position of a process number in `processes`.
    places: HashMap<u32, usize>,
    current: usize,
    /// Where the file stops making sense, and its length.
    pub torn: Option<(usize, usize)>,
}

impl Fold {
    /// Every whole record.
    pub fn of_bytes(bytes: &[u8], path: &Path) -> Result<Fold, ProfileError> {
        let path = || path.to_owned();
        match frame::check_preamble(bytes) {
            Preamble::Ours => {}
            Preamble::Version(found) => {
                return Err(ProfileError::Version {
                    path: path(),
                    found,
                });
            }
            Preamble::Foreign => return Err(ProfileError::Foreign { path: path() }),
            Preamble::Short => {
                let what = "it ends inside its first bytes";
                return Err(ProfileError::Empty { path: path(), what });
            }
        }
        let mut fold = Fold::default();
        let mut at = PREAMBLE;
        while at < bytes.len() {
            match frame::decode(&bytes[at..]) {
                Decoded::Record(record, used) => {
                    fold.add(*record)
                        .map_err(|what| ProfileError::Damaged { path: path(), what })?;
                    at += used;
                }
                Decoded::Torn => {
                    fold.torn = Some((at, bytes.len()));
                    break;
                }
                Decoded::Damaged(what) => {
                    let what = format!("at byte {at}: {what}");
                    return Err(ProfileError::Damaged { path: path(), what });
                }
            }
        }
        Ok(fold)
    }

    pub fn add(&mut self, record: Record) -> Result<(), String> {
        if self.processes.is_empty() != matches!(record, Record::Header(_)) {
            return Err("its header is not the first record".to_owned());
        }
        match record {
            Record::Header(header) => {
                self.places.insert(0, 0);
                self.processes.push(Tables::new(header));
            }
            Record::Process(process) => {
                let next = self.processes.len();
                self.current = *self.places.entry(process.id).or_insert(next);
                if self.current == next {
                    let header = self.processes[0].header.clone();
                    self.processes.push(Tables::new(header));
                }
                // What was run is what the user typed.
                if self.current > 0 {
                    let header = &mut self.processes[self.current].header;
                    header.pid = process.pid;
                    header.ppid = process.ppid;
                    header.command = process.command;
                }
            }
            record => self.processes[self.current].add(record)?,
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Profile, &'static str> {
        let torn = self.torn;
        let mut profiles = self.processes.into_iter().map(|tables| tables.finish(torn));
        let first = profiles.next().ok_or("no header")?;
        // The first one's end is written last: who has none by then was left out, and only its windows may still be there.
        let complete = first.footer.is_some();
        Ok(Profile {
            others: profiles
                .filter(|other| other.footer.is_some() || !complete)
                .collect(),
            ..first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example::beginning;
    use crate::profile::types::{Footer, ProcessRecord};

    #[test]
    fn each_process_has_its_own_tables() {
        let process = |id, name: &str| {
            Record::Process(ProcessRecord {
                id,
                pid: 100 + id as i32,
                ppid: 4242,
                command: vec![name.to_owned()],
            })
        };
        let footer = |status| {
            Record::Footer(Footer {
                exit_status: Some(status),
                ..Footer::default()
            })
        };
        let mut records = beginning();
        records.extend([process(7, "sh"), beginning()[1].clone(), process(3, "ls")]);
        records.extend([
            process(7, "cc"),
            footer(5),
            process(0, "ignored"),
            footer(6),
        ]);
        let p = Profile::from_records(records.clone()).unwrap();
        assert_eq!((p.header.command[0].as_str(), p.instrs.len()), ("./app", 1));
        assert_eq!(p.footer.as_ref().unwrap().exit_status, Some(6));
        // The other has no end, and there is one of the whole.
        let [seven] = &p.others[..] else {
            panic!("{:?}", p.others)
        };
        assert_eq!(
            (seven.header.pid, seven.header.command[0].as_str()),
            (107, "cc")
        );
        assert_eq!((seven.modules.len(), seven.instrs.len()), (1, 0));
        assert_eq!(seven.footer.as_ref().unwrap().exit_status, Some(5));
        assert!(p.read_warnings.is_empty());
        records.pop();
        let broken_off = Profile::from_records(records).unwrap();
        let [_, three] = &broken_off.others[..] else {
            panic!("{:?}", broken_off.others)
        };
        assert_eq!((three.header.pid, three.modules.len()), (103, 0));
        let warnings = |p: &Profile| p.read_warnings.len();
        assert_eq!((warnings(three), warnings(&broken_off)), (1, 1));
    }
}
