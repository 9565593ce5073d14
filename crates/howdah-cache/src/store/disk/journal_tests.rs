//! Tests which records a journal preserves when the process is killed, and which journals are rejected.

use super::*;
use crate::generation::PageValidity;

const BOOT: Option<[u8; 16]> = Some([7; 16]);
const A: Owner = Owner {
    site: [1; 16],
    policy: [1; 16],
};
const B: Owner = Owner {
    site: [2; 16],
    policy: [1; 16],
};

fn open(directory: &Path) -> (Arc<PurgeJournal>, Option<FreshStart>) {
    at(directory, BOOT, 1000)
}

fn at(
    directory: &Path,
    boot: Option<[u8; 16]>,
    now: Millis,
) -> (Arc<PurgeJournal>, Option<FreshStart>) {
    let (journal, fresh) = PurgeJournal::open(directory, boot, now).unwrap();
    (Arc::new(journal), fresh)
}

fn tag(name: &str) -> Purge {
    Purge::Tag(name.as_bytes().to_vec())
}

#[test]
fn purge_survives_a_kill_and_spares_later_pages() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, fresh) = open(directory.path());
    assert_eq!(fresh, Some(FreshStart::NoJournal));
    let born = journal.begin(&[A, B], false)[0].now();
    let tags = [b"t".to_vec()];
    journal.record(&A.site, born + 1, &tag("t"), Force::Soft { at: 7 });
    // The journal is not closed, as after `kill -9`.
    let (journal, fresh) = open(directory.path());
    assert_eq!(fresh, None);
    let again = journal.begin(&[A, B], false);
    assert_eq!(
        again[0].validity_of(born, b"k", &tags),
        PageValidity::Stale { since: 0 }
    );
    assert_eq!(again[0].validity_of(born, b"k", &[]), PageValidity::Valid);
    assert_eq!(
        again[0].validity_of(born + 1, b"k", &tags),
        PageValidity::Valid
    );
    assert_eq!(again[0].now(), born + 1);
    journal.record(&A.site, born + 2, &Purge::All, Force::Hard);
    let (journal, _) = open(directory.path());
    let again = journal.begin(&[A, B], false);
    assert_eq!(
        again[0].validity_of(born + 1, b"k", &[]),
        PageValidity::Purged
    );
    assert_eq!(
        again[1].validity_of(again[1].now(), b"k", &[]),
        PageValidity::Valid
    );
}

#[test]
fn site_with_changed_configuration_or_absence_is_purged() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    let first = journal.begin(&[A, B], false);
    let (a, b) = (first[0].now(), first[1].now());
    let changed = Owner {
        policy: [9; 16],
        ..A
    };
    let (journal, _) = open(directory.path());
    let second = journal.begin(&[changed], false);
    assert_eq!(second[0].validity_of(a, b"k", &[]), PageValidity::Purged);
    let (journal, _) = open(directory.path());
    let third = journal.begin(&[changed, B], false);
    assert_eq!(
        third[1].validity_of(b, b"k", &[]),
        PageValidity::Purged,
        "B was away"
    );
    let kept = second[0].now();
    assert_eq!(third[0].validity_of(kept, b"k", &[]), PageValidity::Valid);
    let fourth = journal.begin(&[changed, B], true);
    assert_eq!(
        fourth[0].validity_of(kept, b"k", &[]),
        PageValidity::Purged,
        "a reload"
    );
}

#[test]
fn interrupted_write_purges_its_site_and_a_finished_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    let sites: Vec<_> = journal
        .begin(&[A, B], false)
        .into_iter()
        .map(Arc::new)
        .collect();
    let (a, b) = (sites[0].now(), sites[1].now());
    drop((sites[0].begin_write(), sites[0].begin_write()));
    let (first, second) = (sites[1].begin_write(), sites[1].begin_write());
    drop(first);
    // A reload keeps writes in progress.
    drop(journal.begin(&[A, B], true));
    let (journal, _) = open(directory.path());
    let again = journal.begin(&[A, B], false);
    assert!(again[0].now() > a && again[1].now() > again[0].now());
    let born = [again[0].now(), again[1].now()];
    drop(second);
    drop(journal);
    let (journal, _) = open(directory.path());
    let third = journal.begin(&[A, B], false);
    assert_eq!([third[0].now(), third[1].now()], born, "told once");
    assert_eq!(third[1].validity_of(b, b"k", &[]), PageValidity::Purged);
}

#[test]
fn journal_of_another_boot_counts_only_if_closed() {
    let directory = tempfile::tempdir().unwrap();
    let other = Some([8; 16]);
    let (journal, _) = open(directory.path());
    drop(journal);
    let (journal, fresh) = at(directory.path(), other, 1000);
    assert_eq!(fresh, Some(FreshStart::MachineStopped));
    journal.close(2000).unwrap();
    let (journal, fresh) = at(directory.path(), BOOT, 3000);
    assert_eq!(fresh, None);
    drop(journal);
    // Opening the journal has removed the mark that it was closed.
    let (_, fresh) = at(directory.path(), other, 3000);
    assert_eq!(fresh, Some(FreshStart::MachineStopped));
    let (_, fresh) = at(directory.path(), None, 3000);
    assert_eq!(fresh, Some(FreshStart::MachineStopped), "an unknown boot");
}

#[test]
fn a_clock_that_was_set_back_while_the_server_was_down_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    journal.stamp(500_000);
    drop(journal);
    let (_, fresh) = at(directory.path(), BOOT, 400_000);
    assert_eq!(fresh, Some(FreshStart::ClockWentBack));
}

#[test]
fn truncated_record_is_ignored_and_a_damaged_one_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    let (journal, _) = open(directory.path());
    let born = journal.begin(&[A], false)[0].now();
    let before = fs::read(&path).unwrap().len();
    journal.record(&A.site, born + 1, &tag("t"), Force::Hard);
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for cut in before..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let (journal, fresh) = open(directory.path());
        assert_eq!(fresh, None, "cut at {cut}");
        let generations = &journal.begin(&[A], false)[0];
        assert_eq!(generations.now(), born, "cut at {cut}");
    }
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x41;
        assert!(parse_journal(&bad, BOOT, 1000).is_err(), "byte {at}");
    }
}

#[test]
fn journal_stays_short_after_many_purges() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    let born = journal.begin(&[A], false)[0].now();
    let name = vec![b'x'; 1000];
    for n in 1..5000 {
        let tag = Purge::Tag(name.clone());
        journal.record(&A.site, born + n, &tag, Force::Hard);
    }
    let length = fs::metadata(directory.path().join(FILE_NAME))
        .unwrap()
        .len();
    assert!(length < 2 * REWRITE_AFTER_BYTES, "{length}");
    let (journal, _) = open(directory.path());
    let generations = &journal.begin(&[A], false)[0];
    assert_eq!(
        generations.validity_of(born + 4998, b"k", &[name]),
        PageValidity::Purged
    );
}

#[test]
fn unwritable_journal_is_removed_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = open(directory.path());
    let born = journal.begin(&[A], false)[0].now();
    // Like a full disk: every write fails.
    journal.lock().file = Some(File::options().write(true).open("/dev/full").unwrap());
    journal.record(&A.site, born + 1, &tag("t"), Force::Hard);
    assert!(!journal.is_writable() && !directory.path().join(FILE_NAME).exists());
    let error = journal.take_error().expect("it is told");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    journal.record(&A.site, born + 2, &tag("u"), Force::Hard);
    assert!(journal.recover());
    let (journal, fresh) = open(directory.path());
    assert_eq!(fresh, None);
    let generations = &journal.begin(&[A], false)[0];
    for name in ["t", "u"] {
        let tags = [name.as_bytes().to_vec()];
        assert_eq!(
            generations.validity_of(born, b"k", &tags),
            PageValidity::Purged
        );
    }
}
