//! Which differences are found, and which of them are harmless.

use super::*;

fn response(status: u16, text: &str) -> ComparedResponse {
    ComparedResponse {
        status,
        body: ComparedBody::Text(text.to_owned()),
        ..ComparedResponse::default()
    }
}

fn compare(
    old: ComparedResponse,
    new: ComparedResponse,
    purpose: RequestPurpose,
) -> Vec<(DifferenceName, bool)> {
    let found = OldResponses::new(old).differences(&new, purpose);
    found
        .iter()
        .map(|one| (one.name, one.is_harmless))
        .collect()
}

#[test]
fn denied_path_is_opened_if_howdah_serves_it() {
    use DifferenceName::{OpensDenied, ServerError, StatusDiffers};
    use RequestPurpose::{Content, Denied, Directory};
    let named = |status| ComparedResponse {
        howdah_error: Some("PoolDown".to_owned()),
        ..response(status, "")
    };
    for (old, new, purpose, expected) in [
        (403, response(200, ""), Denied, Some((OpensDenied, false))),
        (403, response(200, ""), Content, Some((OpensDenied, false))),
        (401, response(206, ""), Content, Some((OpensDenied, false))),
        (404, response(200, ""), Denied, Some((OpensDenied, false))),
        (
            404,
            response(200, ""),
            Content,
            Some((StatusDiffers, false)),
        ),
        // A script that fails has run.
        (403, response(500, ""), Denied, Some((OpensDenied, false))),
        (403, named(503), Denied, Some((ServerError, false))),
        (403, response(404, ""), Denied, Some((StatusDiffers, true))),
        (401, response(404, ""), Denied, Some((StatusDiffers, false))),
        (403, response(302, ""), Denied, Some((StatusDiffers, false))),
        (
            403,
            response(200, ""),
            Directory,
            Some((StatusDiffers, true)),
        ),
        (
            401,
            response(200, ""),
            Directory,
            Some((OpensDenied, false)),
        ),
        // A file that should be private.
        (200, response(404, ""), Denied, Some((StatusDiffers, true))),
        (200, response(301, ""), Denied, Some((StatusDiffers, true))),
        (500, response(403, ""), Denied, Some((StatusDiffers, true))),
        (
            200,
            response(404, ""),
            Content,
            Some((StatusDiffers, false)),
        ),
        (403, response(403, "another page"), Denied, None),
        (200, response(500, ""), Content, Some((ServerError, false))),
    ] {
        let shown = format!("{old} {new:?} {purpose:?}");
        let found = compare(response(old, ""), new, purpose);
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{shown}");
    }
}

#[test]
fn header_that_only_howdah_sends_is_harmless() {
    use DifferenceName::{SecurityHeaderDiffers, ValidatorsDiffer};
    let bare = response(200, "a");
    let mut rich = response(200, "a");
    rich.etag = Some("\"1\"".to_owned());
    rich.security = vec![("x-frame-options", Some("DENY".to_owned()))];
    let mut without = bare.clone();
    without.security = vec![("x-frame-options", None)];
    let found = compare(without.clone(), rich.clone(), RequestPurpose::Content);
    assert_eq!(
        found,
        [(SecurityHeaderDiffers, true), (ValidatorsDiffer, true)]
    );
    let found = compare(rich, without, RequestPurpose::Content);
    assert_eq!(
        found,
        [(SecurityHeaderDiffers, false), (ValidatorsDiffer, false)]
    );
}

#[test]
fn part_that_the_old_server_changes_is_not_compared() {
    let mut first = response(200, "the same text in each response, and 17");
    first.cookies = vec!["a".to_owned()];
    let mut second = response(200, "the same text in each response, and 18");
    second.cookies = vec!["b".to_owned()];
    let new = response(200, "the same text in each response, and 99");
    let mut old = OldResponses::new(first);
    assert_eq!(old.differences(&new, RequestPurpose::Content).len(), 2);
    old.add(second);
    assert_eq!(old.differences(&new, RequestPurpose::Content), []);
    assert!(!old.vary(RequestPurpose::Content));
    old.add(response(503, ""));
    assert!(old.vary(RequestPurpose::Content));
}

#[test]
fn error_pages_of_the_servers_themselves_are_not_compared() {
    let own = |text: &str| ComparedResponse {
        is_own_error_page: true,
        ..response(404, text)
    };
    assert_eq!(
        compare(own("nginx"), own("Howdah"), RequestPurpose::Content),
        []
    );
    let found = compare(
        response(404, "Our page"),
        own("Howdah"),
        RequestPurpose::Content,
    );
    assert_eq!(found, [(DifferenceName::BodyDiffers, false)]);
}

#[test]
fn compression_is_lost_only_where_it_matters() {
    use DifferenceName::CompressionDiffers;
    let compressed = ComparedResponse {
        encoding: Some("gzip".to_owned()),
        ..response(200, "x")
    };
    let purpose = RequestPurpose::Compression;
    let long = response(200, &"x".repeat(2000));
    let found =
        |old: &ComparedResponse, new: &ComparedResponse| compare(old.clone(), new.clone(), purpose);
    assert_eq!(found(&compressed, &long), [(CompressionDiffers, false)]);
    assert_eq!(
        found(&compressed, &response(200, "x")),
        [(CompressionDiffers, true)]
    );
    assert_eq!(found(&long, &compressed), [(CompressionDiffers, true)]);
    assert_eq!(found(&compressed, &compressed), []);
}

#[test]
fn media_types_with_the_same_meaning_are_harmless() {
    let of_type = |kind: &str, charset: &str| ComparedResponse {
        media_type: Some(kind.to_owned()),
        charset: Some(charset.to_owned()).filter(|charset| !charset.is_empty()),
        ..response(200, "")
    };
    for (old, new, expected) in [
        (("text/css", ""), ("text/css", "utf-8"), None),
        (
            ("application/javascript", ""),
            ("text/javascript", "utf-8"),
            Some(true),
        ),
        (
            ("image/x-icon", ""),
            ("image/vnd.microsoft.icon", ""),
            Some(true),
        ),
        (
            ("text/html", "iso-8859-1"),
            ("text/html", "utf-8"),
            Some(false),
        ),
        (
            ("text/xml", "iso-8859-1"),
            ("application/xml", "utf-8"),
            Some(false),
        ),
        (
            ("text/html", ""),
            ("application/octet-stream", ""),
            Some(false),
        ),
    ] {
        let found = compare(
            of_type(old.0, old.1),
            of_type(new.0, new.1),
            RequestPurpose::Content,
        );
        let expected = expected.map(|harmless| (DifferenceName::ContentTypeDiffers, harmless));
        assert_eq!(
            found,
            expected.into_iter().collect::<Vec<_>>(),
            "{old:?} {new:?}"
        );
    }
}

#[test]
fn strict_transport_security_matters_only_over_tls() {
    let with = |certificate: Option<Vec<u8>>, value: Option<&str>| ComparedResponse {
        certificate,
        security: vec![("strict-transport-security", value.map(str::to_owned))],
        ..response(200, "x")
    };
    for (certificate, is_harmless) in [(None, true), (Some(vec![1]), false)] {
        let old = with(certificate.clone(), Some("max-age=31536000"));
        let found = compare(old, with(certificate, None), RequestPurpose::Content);
        assert_eq!(
            found,
            [(DifferenceName::SecurityHeaderDiffers, is_harmless)]
        );
    }
}
