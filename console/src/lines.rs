//! Buffers output so that a screen receives whole lines, and the lines of several tasks are not mixed.

use alloc::string::String;
use core::fmt::{self, Write};

/// A buffer of lines for the screen `W`. Text that the screen refused because ^C was pressed is kept, and shown before
/// the next text.
#[derive(Default)]
pub struct Lines<W: Write> {
    kept: String,
    is_lost: bool,
    screen: W,
}

impl<W: Write> Lines<W> {
    /// Creates a buffer for `screen`.
    pub fn new(screen: W) -> Self {
        Self { kept: String::new(), is_lost: false, screen }
    }

    /// Returns whether text was lost because there was no memory for it.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Shows all text, including an unfinished line.
    ///
    /// # Errors
    ///
    /// Returns the errors of the screen. The text is kept then.
    pub fn flush(&mut self) -> fmt::Result {
        if !self.kept.is_empty() {
            self.screen.write_str(&self.kept)?;
            self.kept.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for Lines<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.kept.try_reserve(text.len()).is_err() {
            self.is_lost = true;
            return Err(fmt::Error);
        }
        self.kept.push_str(text);
        let Some(end) = self.kept.rfind('\n') else { return Ok(()) };
        self.screen.write_str(&self.kept[..=end])?;
        self.kept.drain(..=end);
        Ok(())
    }
}

impl<W: Write> Drop for Lines<W> {
    fn drop(&mut self) {
        // Text that the screen does not accept now is lost.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::{Cell, RefCell};

    /// A screen that refuses text while ^C is pressed.
    #[derive(Clone, Default)]
    struct Screen {
        shown: Rc<RefCell<String>>,
        is_interrupted: Rc<Cell<bool>>,
    }

    impl Write for Screen {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if self.is_interrupted.get() {
                return Err(fmt::Error);
            }
            self.shown.borrow_mut().push_str(text);
            Ok(())
        }
    }

    #[test]
    fn whole_lines_are_shown() {
        let mut lines = Lines::new(Screen::default());
        let shown = lines.screen.shown.clone();
        write!(lines, "a {}", 1).unwrap();
        assert_eq!(*shown.borrow(), "");
        lines.write_str(" b\nc").unwrap();
        assert_eq!(*shown.borrow(), "a 1 b\n");
        lines.flush().unwrap();
        lines.flush().unwrap();
        assert_eq!(*shown.borrow(), "a 1 b\nc");
        lines.write_str("d").unwrap();
        drop(lines);
        assert_eq!(*shown.borrow(), "a 1 b\ncd");
    }

    #[test]
    fn output_is_kept_while_control_c_is_pressed() {
        let mut lines = Lines::new(Screen::default());
        let Screen { shown, is_interrupted } = lines.screen.clone();
        lines.write_str("one\ntw").unwrap();
        is_interrupted.set(true);
        assert_eq!(lines.write_str("o\nthree"), Err(fmt::Error));
        assert_eq!((lines.flush(), lines.write_str("\n")), (Err(fmt::Error), Err(fmt::Error)));
        assert_eq!(*shown.borrow(), "one\n");
        is_interrupted.set(false);
        lines.write_str("four\n").unwrap();
        assert_eq!(*shown.borrow(), "one\ntwo\nthree\nfour\n");
        drop(lines);
        assert_eq!(*shown.borrow(), "one\ntwo\nthree\nfour\n");
    }
}
