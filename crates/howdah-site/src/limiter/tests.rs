use super::*;

fn limit(rate: &str, by: LimitBy) -> Arc<ClientLimit> {
    let rate = Some(rate.parse().unwrap());
    Arc::new(ClientLimit {
        preset: None,
        rate,
        connections: None,
        processes: None,
        by,
    })
}

fn named(site: &str, text: &str, number: usize) -> MeterName {
    let (site, text) = (site.to_owned(), text.to_owned());
    MeterName { site, text, number }
}

#[test]
fn limit_identifies_a_client_by_address_prefix_or_value() {
    let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let network = LimitBy::Network(24, 48);
    for (by, one, other, same) in [
        (LimitBy::Address, "192.0.2.1", "192.0.2.2", false),
        (LimitBy::Address, "192.0.2.1", "::ffff:192.0.2.1", true),
        (
            LimitBy::Address,
            "2001:db8:1:2::1",
            "2001:db8:1:2:ffff::9",
            true,
        ),
        (
            LimitBy::Address,
            "2001:db8:1:2::1",
            "2001:db8:1:3::1",
            false,
        ),
        (network.clone(), "192.0.2.1", "192.0.2.255", true),
        (network.clone(), "192.0.2.1", "192.0.3.1", false),
        (network.clone(), "2001:db8:1:2::1", "2001:db8:1:3::1", true),
        (network, "2001:db8:1:2::1", "2001:db8:2:2::1", false),
        (LimitBy::All, "192.0.2.1", "2001:db8::1", true),
        // Without a value the address is used, whatever the limit's header.
        (
            LimitBy::Header("x-key".into()),
            "192.0.2.1",
            "192.0.2.2",
            false,
        ),
    ] {
        assert_eq!(
            by.client_at(address(one)) == by.client_at(address(other)),
            same,
            "{one} {other} by {by:?}"
        );
    }
}

#[test]
fn limit_that_is_unchanged_by_a_reload_keeps_its_counts() {
    let limiter = Limiter::default();
    let ten = limit("2/h", LimitBy::Address);
    let now = limiter.started;
    let client = LimitBy::Address.client_at("192.0.2.1".parse().ok());
    let pass = |meter: &Meter| {
        limiter
            .count(meter, limiter.key(meter, client), now)
            .is_ok()
    };
    let before = limiter.meter(named("a", "/ 2/h", 0), &ten);
    assert!(pass(&before) && pass(&before) && !pass(&before));
    // Another rule or another site counts clients separately.
    for name in [
        named("b", "/ 2/h", 0),
        named("a", "/x 2/h", 0),
        named("a", "/ 2/h", 1),
    ] {
        assert!(pass(&limiter.meter(name, &ten)));
    }
    // The next configuration is made while the previous one still exists.
    let after = limiter.meter(named("a", "/ 2/h", 0), &ten);
    drop(before);
    assert!(!pass(&after));
    assert_eq!(after.refused(), 2);
    drop(after);
    assert!(pass(&limiter.meter(named("a", "/ 2/h", 0), &ten)));
}

#[test]
fn limit_count_that_is_reverted_does_not_count() {
    let limiter = Limiter::default();
    let meter = limiter.meter(named("a", "", 0), &limit("2/h", LimitBy::Address));
    let key = limiter.key(&meter, ClientIdentity::Everyone);
    let now = limiter.started + Duration::from_secs(9);
    for _ in 0..9 {
        assert!(limiter.count(&meter, key, now).is_ok());
        limiter.revert_count(&meter, key);
    }
    assert!(limiter.count(&meter, key, now).is_ok());
    assert!(limiter.count(&meter, key, now).is_ok());
    assert!(limiter.count(&meter, key, now).is_err());
}

#[test]
fn limit_is_shared_by_threads() {
    let limiter = Limiter::default();
    let meter = limiter.meter(named("a", "", 0), &limit("1000/h", LimitBy::All));
    let key = limiter.key(&meter, ClientIdentity::Everyone);
    let now = limiter.started;
    let passed = std::thread::scope(|scope| {
        let ask = || {
            (0..1000)
                .filter(|_| limiter.count(&meter, key, now).is_ok())
                .count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!((passed, meter.refused()), (1000, 3000));
}

#[test]
fn limit_refuses_connections_by_name_and_logs_once() {
    let limiter = Limiter::default();
    let limit = Arc::new(ClientLimit {
        preset: None,
        rate: None,
        connections: Some(1),
        processes: Some(2),
        by: LimitBy::All,
    });
    assert_eq!(limit.to_string(), "connections 1, processes 2");
    let meter = limiter.meter(named("a", "", 0), &limit);
    let key = limiter.key(&meter, ClientIdentity::Everyone);
    let now = limiter.started;
    let taken = limiter
        .acquire_connection(&meter, key, now)
        .unwrap()
        .unwrap();
    let refused = |is_news| Limited {
        over: LimitPart::Connections,
        wait: Duration::from_secs(1),
        should_log: is_news,
    };
    assert_eq!(
        limiter.acquire_connection(&meter, key, now).unwrap_err(),
        refused(true)
    );
    assert_eq!(
        limiter.acquire_connection(&meter, key, now).unwrap_err(),
        refused(false)
    );
    drop(taken);
    assert!(
        limiter
            .acquire_connection(&meter, key, now)
            .unwrap()
            .is_some()
    );
    assert_eq!(meter.refused(), 2);
}
