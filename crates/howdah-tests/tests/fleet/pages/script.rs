//! Checks that the script that Valkey runs behaves like the registry of the model.

use std::time::Duration;

use howdah_fleet::protocol::{
    ExchangeOutcome, LogEntry, MemberName, RegistryReply, RegistryRequest, SessionId,
};
use howdah_fleet::{InvalidationText, Registry};
use howdah_tests::valkey::Valkey;

use super::registry::ModelRegistry as Model;

const MAX_WAIT: Duration = Duration::from_secs(10);

/// A random sequence that is the same in every run.
struct RandomSequence(u64);

impl RandomSequence {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// A session as a member knows it.
struct MemberSession {
    session: SessionId,
    count: u64,
    position: u64,
}

fn comparable(reply: &RegistryReply<InvalidationText>) -> RegistryReply<InvalidationText> {
    let mut reply = reply.clone();
    // The script and the model have different incarnations.
    reply.incarnation = "".into();
    reply.rows.sort_by_key(|row| row.session);
    reply
}

#[test]
fn script_does_what_the_model_does() {
    let valkey = Valkey::start();
    let registry = Registry::new(valkey.url().parse().unwrap(), "compared", 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut numbers = RandomSequence(7);
    let mut model = Model::empty("".into());
    let mut known: Vec<MemberSession> = Vec::new();
    let mut incarnation: MemberName = "".into();
    let mut connection = runtime.block_on(registry.connect(MAX_WAIT)).unwrap();
    for step in 0..2000_u64 {
        let name = |number: u64| MemberName::from(["a", "b b", "c", "d"][number as usize]);
        let chosen = known.get(numbers.below(known.len() as u64 + 1) as usize);
        let request = match (numbers.below(10), chosen) {
            (0, _) | (_, None) => RegistryRequest::Join {
                name: name(numbers.below(4)),
                session: (1 << 62) + step,
                known: (0..numbers.below(3))
                    .map(|_| name(numbers.below(4)))
                    .collect(),
                is_new: numbers.below(2) == 0,
            },
            (1, Some(of)) => RegistryRequest::Leave {
                incarnation: incarnation.clone(),
                session: of.session,
            },
            (_, Some(of)) => RegistryRequest::Sync {
                // Occasionally the incarnation is another one, or the count is that of an exchange that arrives late.
                incarnation: match numbers.below(20) {
                    0 => "another".into(),
                    _ => incarnation.clone(),
                },
                session: of.session,
                count: of.count.saturating_sub(u64::from(numbers.below(10) == 0)),
                position: of.position,
                entries: (0..numbers.below(3))
                    .map(|number| match number {
                        0 => LogEntry::Purge(format!("hard tag \"{step}\" é").into()),
                        _ => LogEntry::Everything,
                    })
                    .collect(),
                settled: numbers.below(30) == 0,
                over: model
                    .rows
                    .iter()
                    .map(|row| row.session)
                    .filter(|s| s % 3 == 0)
                    .collect(),
                fenced: match numbers.below(8) {
                    // Occasionally the row has changed in the meantime.
                    0 => model.rows.first(),
                    1 => model.rows.last(),
                    _ => None,
                }
                .map(|row| (row.session, row.count.saturating_sub(numbers.below(2))))
                .into_iter()
                .collect(),
                forgets: match numbers.below(30) {
                    0 => vec![name(numbers.below(4))],
                    _ => Vec::new(),
                },
            },
        };
        let exchange = registry.exchange(&mut connection, &request, 1, MAX_WAIT);
        let real = runtime.block_on(exchange).unwrap();
        incarnation = real.incarnation.clone();
        model.incarnation = incarnation.clone();
        let (expected, _) = model.exchange(&request);
        assert_eq!(
            comparable(&real),
            comparable(&expected),
            "step {step}: {request:?}"
        );
        match (&request, real.outcome) {
            (RegistryRequest::Join { session, .. }, _) => known.push(MemberSession {
                session: *session,
                count: 0,
                position: real.head,
            }),
            (
                RegistryRequest::Sync { session, .. },
                ExchangeOutcome::Done(count) | ExchangeOutcome::OutOfStep(count),
            ) => {
                let of = known.iter_mut().find(|of| of.session == *session).unwrap();
                (of.count, of.position) = (count, of.position + numbers.below(2));
                of.position = of.position.min(real.head);
            }
            _ => {}
        }
        if known.len() > 8 {
            known.remove(0);
        }
    }
    valkey.command(&["FLUSHALL"]);
    let request = RegistryRequest::Leave {
        incarnation,
        session: known[0].session,
    };
    let exchange = registry.exchange(&mut connection, &request, 2, MAX_WAIT);
    assert_eq!(
        runtime.block_on(exchange).unwrap().outcome,
        ExchangeOutcome::Unknown
    );
}
