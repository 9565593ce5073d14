//! What a zygote, a spawner or a job and its processes print.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a process and its children print: their stderr and stdout, taken line by line.
#[derive(Debug)]
pub struct Output {
    pipe: OwnedFd,
    line: Vec<u8>,
}

/// A line longer than this is cut into several.
const LONGEST_LINE: usize = 8 * 1024;

impl Output {
    /// Of the reading end of a pipe, which does not block.
    pub fn new(pipe: OwnedFd) -> Output {
        Output {
            pipe,
            line: Vec::new(),
        }
    }

    /// Readable when there is something to take.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Reads the output that has come; `false` at its end, when no process holds the other end any more.
    /// At most 256 KiB a call, so that a process that prints without end holds nothing else up.
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
                        if *b == b'\n' || self.line.len() == LONGEST_LINE {
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
