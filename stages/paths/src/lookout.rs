//! Notices rules that translate addresses and are loaded after `tarn up`, which has looked for them: a firewall may begin later. What
//! is not pinned then breaks when it moves.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::config::Group;
use super::{STAGE, translation};
use tarn_base::output::{Priority, log_at};
use tarn_kernel::nft::read;
use tarn_kernel::route::Destination;

/// Who looks, and what was said.
#[derive(Debug, Default)]
pub struct Lookout {
    /// The ruleset that was looked at last.
    generation: Option<u32>,
    /// The groups whose addresses are translated, once nft has listed its rules.
    looking: Option<Receiver<Vec<Destination>>>,
    /// The groups of which it was said. It is said once: a firewall that is loaded anew is no news.
    told: Vec<Destination>,
}

impl Lookout {
    /// Looks at the rules when they have changed. The next call says what was found.
    pub fn follow(&mut self, groups: &[Group]) {
        let is_looking = match self.looking.as_ref().map(Receiver::try_recv) {
            Some(Ok(found)) => {
                self.tell(found);
                false
            }
            Some(Err(TryRecvError::Empty)) => true,
            Some(Err(TryRecvError::Disconnected)) | None => false,
        };
        if !is_looking {
            self.looking = self.look(groups);
        }
    }

    fn look(&mut self, groups: &[Group]) -> Option<Receiver<Vec<Destination>>> {
        let is_open = |group: &&Group| translation::may_be_pinned(group) && !self.told.contains(&group.to);
        let open: Vec<Group> = groups.iter().filter(is_open).cloned().collect();
        let generation = read::generation().ok()?;
        if open.is_empty() || self.generation == Some(generation) {
            return None;
        }
        self.generation = Some(generation);
        let (found, looking) = channel();
        // On a thread of its own, because the loop's probes must not wait for nft.
        let look = move || {
            let translated = translation::translated(&open).unwrap_or_default();
            drop(found.send(translated));
        };
        thread::Builder::new().name("rules".to_owned()).spawn(look).ok()?;
        Some(looking)
    }

    fn tell(&mut self, found: Vec<Destination>) {
        for to in found {
            let text = format!(
                "{to}: a rule that came after `tarn up` translates addresses, and connections that move break: `tarn up` once more \
                 pins them (pin = false: they are to move)"
            );
            log_at(Priority::Warning, STAGE, text);
            self.told.push(to);
        }
    }
}
