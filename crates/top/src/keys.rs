//! The keys of the keyboard.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::model::Key;

/// What a key that was pressed is for.
pub fn key_of(pressed: &KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    match pressed.modifiers.contains(KeyModifiers::CONTROL) {
        true => with_control(pressed.code),
        false => alone(pressed.code),
    }
}

fn with_control(code: KeyCode) -> Option<Key> {
    match code {
        KeyCode::Char('c' | 'd') => Some(Key::Quit),
        KeyCode::Char('z') => Some(Key::Suspend),
        KeyCode::Char('l') => Some(Key::Redraw),
        _ => None,
    }
}

fn alone(code: KeyCode) -> Option<Key> {
    match code {
        KeyCode::Char('q') => Some(Key::Quit),
        KeyCode::Char('d') => Some(Key::Events),
        KeyCode::Char('?') => Some(Key::Explain),
        KeyCode::Char(' ') => Some(Key::Pause),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter | KeyCode::Right => Some(Key::Enter),
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => Some(Key::Back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In raw mode the terminal turns no key into a signal: without these nobody could stop the program as any other.
    #[test]
    fn the_keys_that_a_terminal_has_for_signals_do_the_same_here() {
        let key = |code, modifiers| key_of(&KeyEvent::new(code, modifiers));
        for (letter, meaning) in [('c', Key::Quit), ('z', Key::Suspend), ('l', Key::Redraw)] {
            assert_eq!(key(KeyCode::Char(letter), KeyModifiers::CONTROL), Some(meaning));
        }
        assert_eq!(key(KeyCode::Char('d'), KeyModifiers::NONE), Some(Key::Events));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
