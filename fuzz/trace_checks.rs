//! Invariants for arbitrary bytes in `traceparent` and `tracestate`.

use howdah_log::traces::context::{is_tracestate, parse_traceparent};

/// Checks a trace context: the first line is a `traceparent`, the rest a `tracestate`.
pub fn trace_context(bytes: &[u8]) {
    let (parent, state) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    if let Some((context, sampled)) = parse_traceparent(parent) {
        // The forwarded value is equivalent, and its trace ID and parent ID are unchanged.
        let own = context.traceparent(sampled);
        assert_eq!(parse_traceparent(&own), Some((context, sampled)));
        assert_eq!(own[2..53], parent[2..53]);
        assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
        assert!(parent.len() == 55 || !parent.starts_with(b"00"));
    }
    if is_tracestate(state) {
        let members = state.split(|byte| *byte == b',');
        let named = members.filter(|member| member.contains(&b'=')).count();
        assert!(named <= 32);
        assert!(state.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
        // A second entry with the same key is not valid.
        if named > 0 {
            assert!(!is_tracestate(&[state, b",", state].concat()));
        }
    }
}
