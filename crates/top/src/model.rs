//! What the screen shows, and what keys do.

use tarn_watch::StageView;

use tarn_watch::Record;
use tarn_watch::Sample;

/// A key that does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Back,
    Pause,
    Events,
    Explain,
    /// Draws everything anew.
    Redraw,
    /// Stops the program, as `^Z` does.
    Suspend,
    Quit,
}

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Screen {
    /// All stages.
    #[default]
    Overview,
    /// The selected stage.
    Stage,
    /// What happened.
    Events,
}

/// All that the screen shows.
#[derive(Debug, Default)]
pub struct Model {
    /// What is shown.
    pub screen: Screen,
    /// The selected stage, by its place.
    pub selected: usize,
    /// Lines that are above the first one shown.
    pub scrolled: usize,
    /// Lines that a page has; drawing sets it.
    pub page: usize,
    /// Whether it is shown what figures mean.
    pub is_explained: bool,
    /// For how many seconds no figures have come, where that is long.
    pub silent_s: Option<u64>,
    /// Where [`Screen::Events`] was opened.
    behind: Screen,
    recorded: Record,
    /// What is shown while the screen is paused.
    frozen: Option<Box<Record>>,
}

impl Model {
    /// Takes what the stages say now, or why they could not be asked; while the screen is paused, too.
    pub fn add(&mut self, sample: Result<Sample, String>) {
        self.recorded.add(sample);
    }

    /// What is shown.
    pub fn record(&self) -> &Record {
        self.frozen.as_deref().unwrap_or(&self.recorded)
    }

    /// Whether what is shown stays as it is.
    pub fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// The selected stage.
    pub fn stage(&self) -> Option<&StageView> {
        self.record().sample.as_ref()?.stages.get(self.selected)
    }

    /// The stage that somebody looks at, by its place.
    pub fn opened(&self) -> Vec<usize> {
        let opened = (self.screen == Screen::Stage).then_some(self.selected);
        opened.into_iter().collect()
    }

    /// What a key does.
    pub fn press(&mut self, key: Key) {
        match key {
            Key::Pause if self.is_paused() => self.frozen = None,
            Key::Pause => self.frozen = Some(Box::new(self.recorded.clone())),
            Key::Enter if self.screen == Screen::Overview => self.show(Screen::Stage),
            Key::Events if self.screen != Screen::Events => {
                self.behind = self.screen;
                self.show(Screen::Events);
            }
            Key::Back | Key::Events => self.go_back(),
            Key::Explain if self.screen == Screen::Stage => self.is_explained = !self.is_explained,
            _ => self.step(key),
        }
    }

    fn show(&mut self, screen: Screen) {
        (self.screen, self.scrolled) = (screen, 0);
    }

    fn go_back(&mut self) {
        match self.screen {
            Screen::Overview => {}
            Screen::Stage => self.show(Screen::Overview),
            Screen::Events => self.show(self.behind),
        }
    }

    /// Moves the selection, or what is shown of a text: as far as there is something.
    fn step(&mut self, key: Key) {
        let stages = self.record().sample.as_ref().map_or(0, |sample| sample.stages.len());
        let (place, last) = match self.screen {
            Screen::Overview => (&mut self.selected, stages.saturating_sub(1)),
            // Drawing knows how long the text is.
            _ => (&mut self.scrolled, usize::MAX),
        };
        let to = match key {
            Key::Up => place.saturating_sub(1),
            Key::Down => place.saturating_add(1),
            Key::PageUp => place.saturating_sub(self.page.max(1)),
            Key::PageDown => place.saturating_add(self.page.max(1)),
            Key::Home => 0,
            Key::End => usize::MAX,
            _ => *place,
        };
        *place = to.min(last);
    }
}
