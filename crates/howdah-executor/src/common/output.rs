//! The output of a zygote, a spawner or a job and its processes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The stderr and stdout of a process and its children, read line by line.
#[derive(Debug)]
pub struct ProcessOutput {
    pipe: OwnedFd,
    line: Vec<u8>,
}

/// The maximum length of a line in bytes. A longer line is split.
const MAX_LINE_BYTES: usize = 8 * 1024;

impl ProcessOutput {
    /// Reads from this end of a pipe, which must be non-blocking.
    pub fn new(pipe: OwnedFd) -> ProcessOutput {
        ProcessOutput {
            pipe,
            line: Vec::new(),
        }
    }

    /// Returns the pipe, which is readable when there is output.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Reads the available output. Returns `false` at its end, when no process holds the other end any more. Reads at
    /// most 256 KiB per call, so a process that prints without end does not hold up anything else.
    pub fn take(&mut self, mut each: impl FnMut(&str)) -> bool {
        let mut bytes = [0; 16 * 1024];
        for _ in 0..16 {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => {
                    self.finish(&mut each);
                    return false;
                }
                Ok(n) => {
                    for b in &bytes[..n] {
                        if *b == b'\n' || self.line.len() == MAX_LINE_BYTES {
                            self.finish(&mut each);
                        }
                        if *b != b'\n' {
                            self.line.push(*b);
                        }
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        true
    }

    fn finish(&mut self, each: &mut impl FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.line);
        if !line.trim().is_empty() {
            each(line.trim_end());
        }
        self.line.clear();
    }
}
