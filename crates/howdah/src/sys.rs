//! Calls to the operating system: those that several programs share ([`howdah_os`]), and the keys and the size of a
//! terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

pub use howdah_os::account::{
    Account, become_user, effective_account, find_group, find_user, web_user,
};
pub use howdah_os::descriptors::{
    close_inherited_on_exec, execute_in_place, exit_with_parent, inherit, take_inherited,
};
pub use howdah_os::process::{
    drop_capabilities, forbid_new_privileges, is_root, may_change_user, set_dumpable,
};
pub use howdah_os::signals::SignalDescriptor;

/// Returns the columns and rows of a terminal; `None` if the descriptor is not a terminal or the size is unknown.
pub fn terminal_size(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let size = tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// A terminal that delivers keys as they are pressed, without echoing them; Ctrl-C is a key, too. Dropping the value
/// restores the terminal.
pub struct RawTerminal {
    terminal: OwnedFd,
    before: Termios,
}

impl RawTerminal {
    /// Switches this terminal to raw keys.
    pub fn enable(terminal: BorrowedFd<'_>) -> io::Result<RawTerminal> {
        let before = tcgetattr(terminal)?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        tcsetattr(&terminal, OptionalActions::Now, &keys)?;
        Ok(RawTerminal { terminal, before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // If the terminal has disappeared, there is nothing to restore.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
