//! The parser: its rules as a table of pages and results, and the property that pieces of any size give the same
//! result. Cases marked with a number follow a test of Varnish (`bin/varnishtest/tests/e*.vtc`).

use proptest::prelude::*;

use super::*;

/// Returns the result as text, in which an include is `[src|alt|continue]`.
fn shown(parts: &[EsiPart]) -> String {
    let mut out = Vec::new();
    for part in parts {
        match part {
            EsiPart::Text(text) => out.extend_from_slice(text),
            EsiPart::Include(include) => {
                out.push(b'[');
                out.extend_from_slice(&include.src);
                if let Some(alt) = &include.alt {
                    out.push(b'|');
                    out.extend_from_slice(alt);
                }
                if include.continues {
                    out.extend_from_slice(b"|continue");
                }
                if include.is_private {
                    out.extend_from_slice(b"|private");
                }
                out.push(b']');
            }
            EsiPart::Dropped(_) => out.extend_from_slice(b"[dropped]"),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn parse_pieces<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> String {
    let mut parser = EsiParser::default();
    let mut parts = Vec::new();
    for piece in pieces {
        parser.push(&Bytes::copy_from_slice(piece), &mut parts);
    }
    parser.finish(&mut parts);
    shown(&parts)
}

const CASES: &[(&str, &str)] = &[
    ("", ""),
    ("no tags", "no tags"),
    ("<p>a < b && c > d</p>", "<p>a < b && c > d</p>"),
    ("a<esi:include src=\"/f\"/>b", "a[/f]b"),
    ("a<esi:include src='/f' />b", "a[/f]b"),
    ("a<esi:include src=/f />b", "a[/f]b"),
    ("a<esi:include\n\tsrc = \"/f\"\n/>b", "a[/f]b"),
    // The end tag is optional, and a tag without `/` counts as well (Symfony; Varnish warns).
    ("a<esi:include src=\"/f\">b", "a[/f]b"),
    ("a<esi:include src=\"/f\"></esi:include>b", "a[/f]b"),
    (
        "<esi:include src=\"/f\" alt=\"/g\" onerror=\"continue\" />",
        "[/f|/g|continue]",
    ),
    ("<esi:include src=\"/f\" onerror=\"no\"/>", "[/f]"),
    (
        "<esi:include src='/f' cache-control='no-vary, Private'/>",
        "[/f|private]",
    ),
    ("<esi:include src='/f' cache-control='public'/>", "[/f]"),
    // The tag is found where plugins write it, in an attribute and in a script.
    (
        "<a data-n='<esi:include src=\"/?lsesi=nonce\"/>'>",
        "<a data-n='[/?lsesi=nonce]'>",
    ),
    (
        "<script>var n = \"<esi:include src='/f' as-var='1' combine='sub'/>\";</script>",
        "<script>var n = \"[/f]\";</script>",
    ),
    // A quoted value may contain `>`.
    ("<esi:include src=\"/f?a>b\"/>", "[/f?a>b]"),
    // e00015, e00030: entities are decoded; a bare `&` stays.
    (
        "<esi:include src=\"/f?a=1&amp;b=&lt;&quot;&apos;&gt;\"/>",
        "[/f?a=1&b=<\"'>]",
    ),
    ("<esi:include src='/f?a=1&b=2&lt=3'/>", "[/f?a=1&b=2&lt=3]"),
    (
        "<esi:include src='/f?a&#038;b&#x26;c&#233;'/>",
        "[/f?a&b&c&#233;]",
    ),
    ("<esi:include src=' /f '/>", "[/f]"),
    // Includes that name no fragment, or two, are dropped.
    ("a<esi:include/>b<esi:include src=\"\"/>c", "abc"),
    ("a<esi:include alt=\"/f\"/>b", "ab"),
    ("a<esi:include src=\"/f\" src=\"/g\"/>b", "ab"),
    // e00001 to e00005: remove, comment, `<!--esi`.
    ("a<esi:remove>x<p>y</p></esi:remove>b", "ab"),
    (
        "a<esi:remove>x<esi:include src=\"/f\"/></esi:remove>b",
        "ab",
    ),
    ("a<esi:remove>x</esi:removed></esi:remove >b", "ab"),
    ("a<esi:remove/>b", "ab"),
    ("a</esi:remove>b", "ab"),
    ("a<esi:remove>b", "a"),
    // e00002: an end tag in a comment or CDATA section does not count.
    (
        "a<esi:remove><![CDATA[</esi:remove>]]>x</esi:remove>b",
        "ab",
    ),
    ("a<esi:remove><!-- </esi:remove> -->x</esi:remove>b", "ab"),
    ("a<esi:remove><!-- </esi:remove>b", "a"),
    ("a<esi:remove><!--esi </esi:remove>b", "ab"),
    ("<!--esi <esi:remove><!-- </esi:remove>a-->b", " ab"),
    // e00008: a quotation mark that is missing takes no other tag with it.
    (
        "a<esi:include src=\"/f />b<esi:include src=\"/g\"/>c<esi:remove>x</esi:remove>",
        "ab[/g]c",
    ),
    ("a<esi:include src=\"/f?a<b\"/>c", "a[/f?a<b]c"),
    ("a<esi:comment text=\"x > y\"/>b", "ab"),
    ("a<!--esi b -->c", "a b c"),
    ("<!--esi<esi:include src=\"/f\"/>-->b-->", "[/f]b-->"),
    ("<!--esi a - b -- c ---->d", " a - b -- c --d"),
    ("<!--esi <!-- x --> y -->", " <!-- x  y -->"),
    ("<!--esi <esi:remove>-->x</esi:remove>y-->z", " yz"),
    // e00008: nothing is processed in comments and CDATA sections.
    (
        "<!-- <esi:include src=\"/f\"/> --><esi:include src=\"/g\"/>",
        "<!-- <esi:include src=\"/f\"/> -->[/g]",
    ),
    ("<!--es --><esi:remove>x</esi:remove>", "<!--es -->"),
    ("<!--><esi:include src=\"/f\"/>-->", "<!-->[/f]-->"),
    (
        "<![CDATA[<esi:remove>]] ]]><esi:remove>x</esi:remove>",
        "<![CDATA[<esi:remove>]] ]]>",
    ),
    // Escaped text is not a tag.
    (
        "&lt;esi:include src=\"/f\"/&gt;",
        "&lt;esi:include src=\"/f\"/&gt;",
    ),
    ("<ESI:include src=\"/f\"/>", "<ESI:include src=\"/f\"/>"),
    ("< esi:include src=\"/f\"/>", "< esi:include src=\"/f\"/>"),
    ("<esiinclude>", "<esiinclude>"),
    // Tags that are not supported are dropped, and their content stays.
    (
        "<esi:vars>$(HTTP_HOST)</esi:vars><esi:foo/>",
        "$(HTTP_HOST)",
    ),
    // An include whose name was given by `<esi:inline>` is replaced by that content.
    (
        "<esi:inline name='/?lsesi=a&amp;b' cache-control='private' cache-tag='t'>N<b></esi:inline>x<esi:include src='/?lsesi=a&b' />y<esi:include src='/?lsesi=c'/>",
        "xN<b>y[/?lsesi=c]",
    ),
    ("<esi:inline name='a'>x", ""),
    ("<esi:inline>x</esi:inline>y", "y"),
    // Unfinished tags at the end of the page.
    ("a<esi:include src=\"/f\"", "a"),
    ("a<es", "a<es"),
    ("a<", "a<"),
    ("a<!--es", "a<!--es"),
];

/// The statements of the ESI Language Specification 1.0, by section, with pages like those of its examples.
const SPECIFICATION: &[(&str, &str, &str)] = &[
    // Elements of other namespaces are passed on; names are always in lower case.
    (
        "3",
        "<html xmlns:esi=\"http://www.edge-delivery.org/esi/1.0\"><xsl:if test=\"a\">b</xsl:if></html>",
        "<html xmlns:esi=\"http://www.edge-delivery.org/esi/1.0\"><xsl:if test=\"a\">b</xsl:if></html>",
    ),
    ("3", "a<esi:include SRC=\"/f\"/>b", "ab"),
    (
        "3.1",
        "<esi:include src=\"http://shop.example/1.html\" alt=\"http://spare.example/2.html\" onerror=\"continue\"/>",
        "[http://shop.example/1.html|http://spare.example/2.html|continue]",
    ),
    // Variables are not supported, so they are part of the URL.
    (
        "3.1",
        "<esi:include src=\"/search?q=$(QUERY_STRING{q})\"/>",
        "[/search?q=$(QUERY_STRING{q})]",
    ),
    (
        "3.2",
        "<esi:inline name=\"/cart\" fetchable=\"no\"> 2 items </esi:inline>a<esi:include src=\"/cart\"/>b",
        "a 2 items b",
    ),
    // Conditions are not supported: their tags are removed, and their contents stay.
    (
        "3.3",
        "<esi:choose><esi:when test=\"$(HTTP_COOKIE{group})=='Club'\"><esi:include src=\"/club\"/></esi:when><esi:otherwise>a</esi:otherwise></esi:choose>",
        "[/club]a",
    ),
    // So are alternatives.
    (
        "3.4",
        "<esi:try><esi:attempt><esi:comment text=\"a banner\"/><esi:include src=\"/banner\"/></esi:attempt><esi:except><a href=\"/\">a</a></esi:except></esi:try>",
        "[/banner]<a href=\"/\">a</a>",
    ),
    (
        "3.5",
        "a<esi:comment text=\"this image is stored for a day.\" />b<!-- c -->",
        "ab<!-- c -->",
    ),
    (
        "3.6",
        "<esi:include src=\"/banner\"/>\n<esi:remove>\n <a href=\"/banner\">a</a>\n</esi:remove>",
        "[/banner]\n",
    ),
    (
        "3.7",
        "<esi:vars><img src=\"/$(HTTP_COOKIE{type})/a.png\"/></esi:vars>",
        "<img src=\"/$(HTTP_COOKIE{type})/a.png\"/>",
    ),
    (
        "3.8",
        "<!--esi\n<p><esi:vars>Hello, $(HTTP_COOKIE{name})!</esi:vars><esi:include src=\"/f\"/></p>\n-->",
        "\n<p>Hello, $(HTTP_COOKIE{name})![/f]</p>\n",
    ),
];

#[test]
fn page_is_processed_as_the_specification_says() {
    for (section, page, expected) in SPECIFICATION {
        for size in [1, 7, page.len()] {
            let result = parse_pieces(page.as_bytes().chunks(size));
            assert_eq!(result, *expected, "section {section} in pieces of {size}");
        }
    }
}

#[test]
fn page_gives_the_expected_parts_however_it_is_cut() {
    for (page, expected) in CASES {
        assert_eq!(
            parse_pieces([page.as_bytes()].into_iter()),
            *expected,
            "{page}"
        );
        for size in 1..page.len().min(9) {
            let cut = parse_pieces(page.as_bytes().chunks(size));
            assert_eq!(cut, *expected, "{page} in pieces of {size}");
        }
    }
}

#[test]
fn page_without_tags_has_no_parts() {
    for page in [
        "",
        "<p>text</p>",
        "<!-- <esi:include src='/f'/> -->",
        "a<esi",
    ] {
        assert_eq!(
            parse_page(&Bytes::copy_from_slice(page.as_bytes())),
            None,
            "{page}"
        );
    }
    for page in ["<esi:comment text='x'/>", "<!--esi -->", "</esi:x>"] {
        assert!(
            parse_page(&Bytes::copy_from_slice(page.as_bytes())).is_some(),
            "{page}"
        );
    }
}

#[test]
fn text_of_a_whole_page_is_not_copied() {
    let page = Bytes::from_static(b"<p>a < b</p><esi:include src='/f'/><p>c</p>");
    let parts = parse_page(&page).unwrap();
    assert_eq!(parts.len(), 3);
    for part in &parts {
        if let EsiPart::Text(text) = part {
            assert!(page.as_ptr_range().contains(&text.as_ptr()));
        }
    }
}

#[test]
fn tag_that_is_too_long_is_text() {
    let long = format!("<esi:include src='/{}'/>", "x".repeat(MAX_TAG_BYTES));
    let page = format!("a{long}b");
    for size in [1000, 8192, 8193, 100_000] {
        assert_eq!(parse_pieces(page.as_bytes().chunks(size)), page, "{size}");
    }
    // The bytes in which its end was looked for are text as a whole.
    let unfinished = format!(
        "<esi:x a=\"<esi:include src='/f'/>{}",
        " ".repeat(2 * MAX_TAG_BYTES)
    );
    for size in [1000, 8192, 8193, 100_000] {
        assert_eq!(parse_pieces(unfinished.as_bytes().chunks(size)), unfinished);
    }
    let end = format!("</esi:remove{}>", " ".repeat(2 * MAX_TAG_BYTES));
    let page = format!("<esi:remove>{end}x</esi:remove>y");
    assert_eq!(parse_pieces(page.as_bytes().chunks(100)), "y");
}

#[test]
fn inline_content_beyond_the_limit_is_dropped() {
    let content = "x".repeat(MAX_INLINE_BYTES / 2 + 1);
    let inline = |name| format!("<esi:inline name='{name}'>{content}</esi:inline>");
    let page = format!(
        "{}{}<esi:include src='b'/><esi:include src='a'/>",
        inline("a"),
        inline("b")
    );
    let expected = format!("[b]{content}");
    assert_eq!(parse_pieces(page.as_bytes().chunks(5000)), expected);
}

#[test]
fn contents_are_inserted_up_to_the_limit_and_requested_beyond_it() {
    let content = "x".repeat(MAX_INLINE_BYTES / 4);
    let page = format!(
        "<esi:inline name='a'>{content}</esi:inline>{}",
        "<esi:include src='a'/>".repeat(6)
    );
    let expected = format!("{}[a][a]", content.repeat(4));
    assert_eq!(parse_pieces([page.as_bytes()].into_iter()), expected);
}

#[test]
fn number_of_contents_is_limited() {
    let inline = |n: usize| format!("<esi:inline name='{n}'></esi:inline>");
    let inlines: String = (0..=MAX_INLINES).map(inline).collect();
    let last = MAX_INLINES - 1;
    let page = format!("{inlines}a<esi:include src='{last}'/>b<esi:include src='{MAX_INLINES}'/>c");
    let expected = format!("ab[{MAX_INLINES}]c");
    assert_eq!(parse_pieces([page.as_bytes()].into_iter()), expected);
    // Their names count, too.
    let long = "n".repeat(7000);
    let inlines: String = (0..200)
        .map(|n| inline(n).replace("name='", &format!("name='{long}")))
        .collect();
    let page = format!("{inlines}<esi:include src='{long}0'/>.<esi:include src='{long}199'/>");
    let expected = format!(".[{long}199]");
    assert_eq!(parse_pieces([page.as_bytes()].into_iter()), expected);
}

/// Words from which pages are made that reach every state of the parser.
fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<esi:include src='/f'/>",
        "<esi:include src=\"/g\" alt='/h' onerror='continue'>",
        "</esi:include>",
        "<esi:include ",
        "<esi:remove>",
        "</esi:remove>",
        "<esi:inline name='/f'>",
        "</esi:inline>",
        "<esi:comment text='x'/>",
        "<esi:vars>",
        "<!--esi",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<",
        ">",
        "/",
        "'",
        "\"",
        "-",
        "esi:",
        "text ",
        "&amp;",
    ])
}

proptest! {
    #[test]
    fn result_does_not_depend_on_the_pieces(
        words in prop::collection::vec(word(), 0..24),
        cuts in prop::collection::vec(1_usize..12, 1..8),
    ) {
        let page = words.concat();
        let whole = parse_pieces([page.as_bytes()].into_iter());
        let mut rest = page.as_bytes();
        let mut cuts = cuts.iter().cycle();
        let pieces = std::iter::from_fn(|| {
            let (piece, more) = rest.split_at((*cuts.next()?).min(rest.len()));
            rest = more;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(parse_pieces(pieces), whole);
    }

    #[test]
    fn text_without_esi_is_unchanged(text in "[a-z<>!\\[\\]/ -]{0,80}") {
        prop_assert_eq!(parse_pieces([text.as_bytes()].into_iter()), text);
    }
}

#[test]
fn tags_beyond_the_limit_are_dropped_and_reported_once() {
    let tag = "<esi:include src='/f'/>";
    let page = |tags: usize| tag.repeat(tags) + "end";
    let parse = |text: String| parse_pieces([text.as_bytes()].into_iter());
    let whole = "[/f]".repeat(MAX_INCLUDE_TAGS);
    assert_eq!(parse(page(MAX_INCLUDE_TAGS)), format!("{whole}end"));
    let cut = format!("{whole}[dropped]end");
    assert_eq!(parse(page(MAX_INCLUDE_TAGS + 1)), cut);
    assert_eq!(parse(page(MAX_INCLUDE_TAGS + 500)), cut);
}
