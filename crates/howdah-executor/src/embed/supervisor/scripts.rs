//! Scripts that are compiled in advance: the zygote lists the scripts in its opcode cache, or compiles such a list.

use std::os::fd::{AsFd, OwnedFd};

use howdah_proto::control::{ScriptsOperation, ZygoteCommand};
use tokio::sync::oneshot;

use super::super::zygote::ProtocolError;
use super::{Supervisor, ZygoteState};

impl Supervisor {
    /// Makes the zygote work on scripts. Drops `done` if that is not possible.
    pub(super) fn start_scripts_operation(
        &mut self,
        work: ScriptsOperation,
        file: &OwnedFd,
        done: oneshot::Sender<()>,
    ) {
        self.forget_abandoned_scripts();
        if let ZygoteState::Ready { link } = &self.zygote
            && self.scripts.is_none()
            && link
                .send_with(&ZygoteCommand::Scripts(work), &[file.as_fd()])
                .is_ok()
        {
            self.scripts = Some((self.generation, done));
        }
    }

    /// Drops the sender of work whose zygote has been lost: it is neither the pool's current zygote nor a former one
    /// whose reports are still read.
    pub(super) fn forget_abandoned_scripts(&mut self) {
        if let Some((of, _)) = &self.scripts
            && *of != self.generation
            && !self.workers.has_former(*of)
        {
            self.scripts = None;
        }
    }

    pub(super) fn on_scripts_done(&mut self, generation: u64) -> Result<(), ProtocolError> {
        match self.scripts.take() {
            Some((of, done)) if of == generation => {
                // The waiting task may have been dropped.
                let _ = done.send(());
                Ok(())
            }
            _ => Err(ProtocolError::of("scripts-done", "there was nothing to do")),
        }
    }
}
