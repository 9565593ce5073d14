//! The messages of a worker child: its script has booted, or it has failed to boot. Each message is one packet of text
//! that the child sends to its zygote, which forwards it ([`crate::control::ZygoteReport::Worker`]).

use crate::shm::ChildId;

/// A message from a worker to the front about its script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerMessage {
    /// The script has asked for its first request.
    Booted {
        /// The worker whose script has booted.
        child: ChildId,
    },
    /// The worker asks for all workers to be replaced (`opcache_reset()`).
    Restart {
        /// The worker whose script asked.
        child: ChildId,
    },
    /// The script ended before it asked for a request.
    Failed {
        /// The worker whose script ended.
        child: ChildId,
        /// `WorkerBootFailed` or `WorkerNeverAsked`.
        name: String,
        /// The script, and PHP's message with file and line.
        message: String,
    },
}

impl WorkerMessage {
    /// Returns the worker that sent the message.
    pub fn child(&self) -> ChildId {
        match self {
            WorkerMessage::Booted { child }
            | WorkerMessage::Restart { child }
            | WorkerMessage::Failed { child, .. } => *child,
        }
    }

    /// Encodes the message as the text of one packet.
    pub fn encode(&self) -> String {
        let child = self.child();
        let (index, incarnation) = (child.index, child.incarnation);
        match self {
            WorkerMessage::Booted { .. } => format!("booted {index} {incarnation}"),
            WorkerMessage::Restart { .. } => format!("restart {index} {incarnation}"),
            WorkerMessage::Failed { name, message, .. } => {
                format!("failed {index} {incarnation} {name} {message}")
            }
        }
    }

    /// Parses a packet. Returns `None` if it is not one of these messages.
    pub fn parse(packet: &[u8]) -> Option<WorkerMessage> {
        let text = std::str::from_utf8(packet).ok()?;
        let mut parts = text.splitn(5, ' ');
        let verb = parts.next()?;
        let child = ChildId {
            index: parts.next()?.parse().ok()?,
            incarnation: parts.next()?.parse().ok()?,
        };
        match (verb, parts.next(), parts.next()) {
            ("booted", None, None) => Some(WorkerMessage::Booted { child }),
            ("restart", None, None) => Some(WorkerMessage::Restart { child }),
            ("failed", Some(name), Some(message)) => Some(WorkerMessage::Failed {
                child,
                name: name.to_owned(),
                message: message.to_owned(),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_messages_round_trip_and_malformed_ones_are_refused() {
        let child = ChildId {
            index: 7,
            incarnation: 65535,
        };
        let failed = WorkerMessage::Failed {
            child,
            name: "WorkerBootFailed".into(),
            message: "/srv/w.php: oh no in /srv/a b.php on line 3".into(),
        };
        for word in [
            WorkerMessage::Booted { child },
            WorkerMessage::Restart { child },
            failed,
        ] {
            assert_eq!(WorkerMessage::parse(word.encode().as_bytes()), Some(word));
        }
        for nonsense in [
            "",
            "booted",
            "booted 1",
            "booted 1 2 3",
            "failed 1 2 X",
            "x 1 2",
            "\u{e9} 1 2",
        ] {
            assert_eq!(
                WorkerMessage::parse(nonsense.as_bytes()),
                None,
                "{nonsense}"
            );
        }
    }
}
