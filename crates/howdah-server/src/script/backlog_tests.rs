//! Clients that are slower than their script, with whole responses.

use std::path::{Path, PathBuf};

use super::super::pump::{Pump, ResponseOutcome};
use super::super::pump_rig::{END, FakeClient, FakeScript, PumpRig, body, head_event};
use super::super::{spill, wait};
use super::*;

/// Returns a script that writes these pieces.
fn writes(pieces: impl IntoIterator<Item = Vec<u8>>) -> FakeScript {
    let pieces = pieces.into_iter().map(|piece| body(&piece));
    FakeScript(
        [head_event(&[])]
            .into_iter()
            .chain(pieces)
            .chain([END()])
            .collect(),
    )
}

/// Returns a script that writes this many pieces of 50 kB.
fn writes_many(pieces: usize) -> FakeScript {
    writes(std::iter::repeat_n(vec![b'x'; 50_000], pieces))
}

/// Returns a client that reads a thousand bytes, and then nothing until it gets a larger window.
fn slow() -> FakeClient {
    FakeClient {
        window: 1000,
        ..FakeClient::default()
    }
}

/// Lets the client read the rest in pieces of 30 kB.
fn take_the_rest(
    rig: &PumpRig,
    pump: &mut Pump<'_>,
    script: &mut FakeScript,
    client: &mut FakeClient,
) {
    for _ in 0..100 {
        if rig.poll_turns(pump, script, client, 1).is_some() {
            return;
        }
        client.window += 30_000;
    }
    panic!("the client starves");
}

#[test]
fn slow_client_frees_the_process_and_gets_every_byte_in_order() {
    let rig = PumpRig::new(&[]);
    let piece = |n: usize| vec![(n % 251) as u8; 50_000];
    let pieces: Vec<_> = (0..16).map(piece).collect();
    let (mut script, mut client) = (writes(pieces.clone()), slow());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    // Memory is full; the client still has a moment to read.
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5)
            .is_none()
    );
    assert!(!script.0.is_empty(), "the script waits at first");
    rig.advance_clock(SPILL_DELAY);
    // Then the rest goes to the file, and the script is done.
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5)
            .is_none()
    );
    assert!(
        script.0.is_empty(),
        "the script is through although the client has {} bytes",
        client.body.len()
    );
    take_the_rest(&rig, &mut pump, &mut script, &mut client);
    assert_eq!(client.all(), pieces.concat());
    assert!(
        client.most_queued <= 200_000 + 50_000,
        "{}",
        client.most_queued
    );
}

#[test]
fn script_waits_beyond_the_spill_file_and_without_one() {
    let cases = [
        (300_000u64, std::env::temp_dir(), true),
        (0, std::env::temp_dir(), false),
        (1 << 20, PathBuf::from("/nonexistent"), false),
    ];
    for (spill, directory, file) in cases {
        let mut rig = PumpRig::new(&[]);
        rig.config.buffers.response_spill = spill;
        rig.config.buffers.directory = directory;
        let (mut script, mut client) = (writes_many(40), slow());
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        assert!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 5)
                .is_none()
        );
        let before = script.0.len();
        rig.advance_clock(SPILL_DELAY);
        assert!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 5)
                .is_none()
        );
        assert_eq!(script.0.len() < before, file, "spill {spill}");
        assert!(!script.0.is_empty(), "the script waits");
        let told = pump.take_spill_error().is_some();
        assert_eq!(
            told,
            rig.config.buffers.directory == Path::new("/nonexistent")
        );
        client.window = usize::MAX;
        assert!(matches!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 99),
            Some(ResponseOutcome::Complete)
        ));
        assert_eq!(client.all().len(), 2_000_000);
    }
}

#[test]
fn slow_client_is_disconnected_while_the_script_waits() {
    let mut rig = PumpRig::new(&[]);
    rig.config.buffers.response_spill = 0;
    let (mut script, mut client) = (writes_many(400), FakeClient::default());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5)
            .is_none()
    );
    // The client reads just enough in the first window, and too little in the second.
    for (takes, goes_on) in [(2_700_000, true), (100_000, false)] {
        for _ in 0..10 {
            client.window += takes / 10;
            assert!(
                rig.poll_turns(&mut pump, &mut script, &mut client, 9)
                    .is_none()
            );
            rig.advance_clock(wait::RATE_WINDOW / 10);
        }
        let ended = rig.poll_turns(&mut pump, &mut script, &mut client, 9);
        assert_eq!(ended.is_none(), goes_on, "{takes}: {ended:?}");
        let slow = matches!(ended, Some(ResponseOutcome::CutOff(Failure::ClientTooSlow)));
        assert_eq!((slow, client.aborted), (!goes_on, !goes_on));
    }
}

#[test]
fn spilled_response_needs_a_faster_client_while_room_is_short() {
    for (limit, rate) in [(u64::MAX, 0), (1_200_000, spill::BUSY_MIN_BYTES_PER_SECOND)] {
        let rig = PumpRig::new(&[]);
        rig.config.room.set_limit(limit);
        let (mut script, mut client) = (writes_many(20), FakeClient::default());
        let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
        assert!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 5)
                .is_none()
        );
        rig.advance_clock(SPILL_DELAY);
        assert!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 5)
                .is_none()
        );
        assert!(script.0.is_empty());
        client.window = 1000;
        assert!(
            rig.poll_turns(&mut pump, &mut script, &mut client, 5)
                .is_none()
        );
        assert_eq!(client.min_rate, rate);
    }
}

#[test]
fn full_disk_makes_the_script_wait_and_loses_nothing() {
    let rig = PumpRig::new(&[]);
    let piece = |n: usize| vec![n as u8; 50_000];
    let (mut script, mut client) = (writes((0..20).map(piece)), slow());
    let mut pump = Pump::new(&rig.config, &rig.request, &|_| {}, true);
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5)
            .is_none()
    );
    // Memory has to be full; otherwise the empty file would be closed at once.
    assert!(client.queued() >= REFILL_BYTES);
    pump.backlog.simulate_full_disk();
    assert!(
        rig.poll_turns(&mut pump, &mut script, &mut client, 5)
            .is_none()
    );
    assert!(script.0.len() > 10, "the script waits");
    let why = pump.take_spill_error().expect("the log is told why");
    assert_eq!(why.name(), "SpillFailed");
    take_the_rest(&rig, &mut pump, &mut script, &mut client);
    assert!(pump.take_spill_error().is_none(), "once a response");
    let all: Vec<u8> = (0..20).flat_map(piece).collect();
    assert_eq!(client.all(), all);
}
