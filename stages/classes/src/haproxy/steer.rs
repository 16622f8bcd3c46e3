//! Steers HAProxy: what it counted goes into the shares, and the order that follows from them goes back.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::rule::Shares;
use super::runtime::Runtime;
use super::snippet::{Names, entries, priorities};
use crate::STAGE;
use crate::config::{Config, Proxied};
use tarn_base::output::log;

/// How often it is HAProxy's turn.
pub const TURN: Duration = Duration::from_millis(100);
/// More changes of clients than that are given as a whole map,
const CHANGES_MOST: usize = 200;
/// and so are fewer in a large map, for HAProxy looks for what it changes from the beginning.
const WORK_MOST: usize = 2_000_000;
/// A HAProxy that takes longer to fail hangs, and has its turn again only after some time.
const HANGS: Duration = Duration::from_secs(1);
const BACK_OFF: Duration = Duration::from_secs(5);

/// Prefixes of clients, as HAProxy's maps have them, and the numbers of their classes.
pub type Classified = HashMap<String, usize>;

/// One service.
pub struct Steered {
    service: Proxied,
    names: Names,
    runtime: Runtime,
    shares: Shares,
    /// The places that HAProxy has; `None` when it has to be given all.
    given: Option<Vec<usize>>,
    /// The clients that it has.
    clients: Rc<Classified>,
    class_names: Vec<String>,
    was_behind: Vec<bool>,
    /// It hung: when it is its turn again, and why it was not.
    not_before: Duration,
    away: Option<String>,
}

impl Steered {
    /// From here on, `now` being any clock that never goes back.
    pub fn new(config: &Config, service: &Proxied, now: Duration) -> Self {
        let targets = config.classes.iter().map(|class| class.target).collect();
        Self {
            service: service.clone(),
            names: Names::new(&service.name, &service.maps),
            runtime: Runtime::new(&service.socket),
            shares: Shares::new(targets, config.window, now),
            given: None,
            clients: Rc::default(),
            class_names: config.classes.iter().map(|class| class.name.clone()).collect(),
            was_behind: vec![false; config.classes.len()],
            not_before: Duration::ZERO,
            away: None,
        }
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        &self.service.name
    }

    /// Its shares.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Goes on with shares that were counted before, where they fit.
    pub fn resume(&mut self, shares: Shares) {
        self.shares.resume(shares);
    }

    /// One turn. HAProxy is given all only where that `is_wanted`, and no clients before those are known.
    ///
    /// # Errors
    /// HAProxy is not there, or not configured for it. With the next turn it is given all.
    pub fn turn(
        &mut self,
        clients: Option<&Rc<Classified>>,
        now: Duration,
        is_wanted: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        if now < self.not_before {
            return self.away.as_deref().map_or(Ok(()), |text| bail!("{text}"));
        }
        let began = Instant::now();
        let turned = self.try_turn(clients, now, is_wanted);
        // One that hangs keeps the others waiting.
        if let (Err(error), true) = (&turned, began.elapsed() > HANGS) {
            self.not_before = now + BACK_OFF;
            self.away = Some(format!("{error:#}"));
        }
        turned
    }

    fn try_turn(
        &mut self,
        clients: Option<&Rc<Classified>>,
        now: Duration,
        is_wanted: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let classes = self.service.deadlines.len();
        let counted = self.runtime.counted(&self.names.table, classes)?;
        self.shares.count(&counted, now);
        let places = self.shares.places(&self.service.deadlines, now);
        self.note_behind(now);
        let given = self.given.take();
        // A HAProxy that was started again has its maps from their files: empty, and no entry can be set.
        if given.is_none_or(|given| self.set_priorities(&given, &places).is_err()) {
            if !is_wanted()? {
                return Ok(());
            }
            let entries = entries(&places, &self.service.deadlines);
            self.runtime.replace(&self.names.classes, &entries)?;
            if let Some(clients) = clients {
                self.replace_clients(clients)?;
            }
        }
        if let Some(clients) = clients {
            self.change_clients(clients)?;
        }
        self.given = Some(places);
        Ok(())
    }

    /// Logs which classes are the last because priority does not help them.
    fn note_behind(&mut self, now: Duration) {
        for class in 0..self.was_behind.len() {
            let is_behind = self.shares.is_behind(class, now);
            if is_behind == std::mem::replace(&mut self.was_behind[class], is_behind) {
                continue;
            }
            let (service, class) = (&self.service.name, &self.class_names[class]);
            let text = match is_behind {
                true => "is served last for a while: though it was first, its answers were late or did not come",
                false => "is served in its turn again",
            };
            log(STAGE, format!("{service}: class {class} {text}"));
        }
    }

    /// Those that have changed; the first always, which finds out whether HAProxy has any.
    fn set_priorities(&self, given: &[usize], places: &[usize]) -> Result<()> {
        let is_needed = |class: usize| class == 0 || given[class] != places[class];
        let entries = priorities(places).enumerate();
        let changes: Vec<_> = entries
            .filter(|(class, _)| is_needed(*class))
            .map(|(_, (key, value))| ("set", key, value))
            .collect();
        self.runtime.change(&self.names.classes, &changes)
    }

    fn replace_clients(&mut self, clients: &Rc<Classified>) -> Result<()> {
        let entries = clients
            .iter()
            .map(|(prefix, class)| (prefix.clone(), class.to_string()));
        let entries: Vec<_> = entries.collect();
        self.runtime.replace(&self.names.clients, &entries)?;
        self.clients = Rc::clone(clients);
        Ok(())
    }

    fn change_clients(&mut self, clients: &Rc<Classified>) -> Result<()> {
        if Rc::ptr_eq(clients, &self.clients) {
            return Ok(());
        }
        let gone = self.clients.keys().filter(|prefix| !clients.contains_key(*prefix));
        let gone = gone.map(|prefix| ("del", prefix.clone(), String::new()));
        let come = clients.iter().filter_map(|(prefix, class)| {
            let how = match self.clients.get(prefix) {
                None => "add",
                Some(before) if before != class => "set",
                Some(_) => return None,
            };
            Some((how, prefix.clone(), class.to_string()))
        });
        let changes: Vec<_> = gone.chain(come).collect();
        if changes.len() > CHANGES_MOST || changes.len() * clients.len() > WORK_MOST {
            return self.replace_clients(clients);
        }
        self.runtime.change(&self.names.clients, &changes)?;
        self.clients = Rc::clone(clients);
        Ok(())
    }

    /// Has HAProxy count anew.
    ///
    /// # Errors
    /// Those of [`Self::turn`].
    pub fn reset(&self) -> Result<()> {
        self.runtime.reset(&self.names.table, self.service.deadlines.len())
    }

    /// Has HAProxy serve all alike, as if tarn was not there.
    ///
    /// # Errors
    /// Those of [`Self::turn`].
    pub fn end(&mut self) -> Result<()> {
        self.given = None;
        let ended = self.runtime.replace(&self.names.classes, &[]);
        ended.and(self.runtime.replace(&self.names.clients, &[]))
    }
}
