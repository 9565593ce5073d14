//! The PHP stacks of running children, as the slow log requests them.

mod front;

use front::{FrontRequest, TestDir, TestFront, is_alive};

#[test]
fn trace_shows_the_stack_of_a_child_stuck_in_a_call() {
    let dir = TestDir::new();
    let script = dir.write(
        "stuck.php",
        "<?php\nclass Shop {\n  function buy() {\n    echo 'in'; flush();\n    sleep(1000);\n  }\n}\nfunction go() {\n  (new Shop)->buy();\n}\ngo();\n",
    );
    let mut front = TestFront::start(1, &["-d", "output_buffering=0"]);
    let child = front.children[0].0;
    front.wait_child(child, |c| c.live);
    assert_eq!(front.trace(child), "", "an idle child has no stack");
    let mut flight = front.publish(FrontRequest::get(&script));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    // The flush precedes the sleep, so the test asks until the child sleeps.
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    let stack = loop {
        let stack = front.trace(child);
        if stack.starts_with("sleep()") || std::time::Instant::now() > deadline {
            break stack;
        }
    };
    let file = script.display();
    assert_eq!(
        stack,
        format!("sleep() {file}:5\nShop::buy() {file}:5\ngo() {file}:9\n{{main}}() {file}:11")
    );
}

#[test]
fn trace_shows_the_stack_of_a_child_stuck_in_a_loop() {
    let dir = TestDir::new();
    let script = dir.write(
        "loop.php",
        "<?php\nfunction spin() {\n  $i = 0;\n  while (true) {\n    $i += strlen(str_repeat('x', $i % 7));\n  }\n}\necho 'in'; flush();\nspin();\n",
    );
    let mut front = TestFront::start(
        1,
        &["-d", "output_buffering=0", "-d", "max_execution_time=0"],
    );
    let child = front.children[0].0;
    let mut flight = front.publish(FrontRequest::get(&script));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    loop {
        let stack = front.trace(child);
        if stack.contains("spin()") {
            let file = script.display().to_string();
            assert!(stack.lines().all(|l| l.contains(&file)), "{stack}");
            assert!(stack.ends_with(&format!("{{main}}() {file}:9")), "{stack}");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{stack}");
    }
}

#[test]
fn trace_of_a_changing_stack_does_not_harm_the_child() {
    let dir = TestDir::new();
    // The script runs calls, generators, closures and included files and frees their frames, as fast as possible.
    let script = dir.write(
        "churn.php",
        "<?php function g($n) { yield $n; if ($n) { yield from g($n - 1); } } \
         function f($n) { return $n ? f($n - 1) + 1 : array_sum(array_map(fn ($x) => strlen((string)$x), iterator_to_array(g(5), false))); } \
         echo 'in'; flush(); while (!connection_aborted()) { f(random_int(0, 30)); \
         try { eval('throw new Exception;'); } catch (Exception $e) {} if (random_int(0, 9) == 0) { echo ' '; flush(); } }",
    );
    let mut front = TestFront::start(
        1,
        &["-d", "output_buffering=0", "-d", "max_execution_time=0"],
    );
    let (child, pid) = front.children[0];
    let mut flight = front.publish(FrontRequest::get(&script));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    let mut told = 0;
    for _ in 0..500 {
        let stack = front.trace(child);
        told += usize::from(stack.contains("churn.php"));
        assert!(stack.lines().count() <= 64 && stack.len() < 32 * 1024);
        front.poll_flight(&mut flight);
    }
    assert!(told > 250, "{told} of 500 looks told something");
    assert!(is_alive(pid));
    front.abort(&flight);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.died, None);
}

#[test]
fn trace_of_deep_recursion_is_limited() {
    let dir = TestDir::new();
    let script = dir.write("deep.php", "<?php function f($n) { if ($n) { f($n - 1); } else { echo 'in'; flush(); sleep(1000); } } f(5000);");
    let mut front = TestFront::start(1, &["-d", "output_buffering=0"]);
    let child = front.children[0].0;
    let mut flight = front.publish(FrontRequest::get(&script));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    let depth = front.trace(child).lines().count();
    assert!((20..=64).contains(&depth), "{depth}");
}
