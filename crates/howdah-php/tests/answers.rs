//! What a script writes is what the front reads: status, headers, body, order.

mod front;

use front::{Dir, Front, Request};

#[test]
fn hello_is_answered() {
    let dir = Dir::new();
    let script = dir.write(
        "hello.php",
        "<?php echo 'Hello, ', $_GET['name'] ?? 'nobody';",
    );
    let mut front = Front::start(1, &[]);
    let answer = front.run(Request::get(&script).var("QUERY_STRING", "name=world"));
    assert_eq!(
        (answer.status(), answer.text()),
        (200, "Hello, world".into())
    );
    assert_eq!(answer.header("Content-Type"), ["text/html; charset=UTF-8"]);
    let answer = front.run(Request::get(&script));
    assert_eq!(answer.text(), "Hello, nobody");
    assert!(answer.logs.is_empty(), "{:?}", answer.logs);
}
