static OTHER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn other_text(text: &'static str) -> &'static str {
    if OTHER.load(std::sync::atomic::Ordering::SeqCst) {
        return "?";
    }
    text
}

fn is_unintended(test: fn()) -> bool {
    let Err(error) = std::panic::catch_unwind(test) else { return false };
    let text = error.downcast_ref::<&str>().copied().or(error.downcast_ref::<String>().map(|text| text.as_str()));
    !text.unwrap_or_default().starts_with("assertion")
}

fn main() {
    use std::panic::catch_unwind;
    std::panic::set_hook(Box::new(|_| {}));
    let tests: Vec<(&str, fn())> = vec![TESTS];
    let say = |name: &str, phase: &str, passes: bool| {
        let kind = if passes { "" } else { "AssertionError" };
        println!("\nTOKEN[\"result\", \"{name}\", \"{phase}\", \"{kind}\", \"it panics\"]");
    };
    for (name, test) in &tests {
        say(name, "plain", catch_unwind(*test).is_ok());
    }
    let begin = std::time::Instant::now();
    let mut passes = vec![true; tests.len()];
    let mut rounds = 0;
    while rounds < ROUNDS && begin.elapsed().as_millis() < SECONDS {
        rounds += 1;
        for (at, (_, test)) in tests.iter().enumerate() {
            passes[at] = passes[at] && catch_unwind(*test).is_ok();
        }
    }
    for (at, (name, _)) in tests.iter().enumerate() {
        say(name, "many", passes[at]);
    }
    OTHER.store(true, std::sync::atomic::Ordering::SeqCst);
    for (name, test) in &tests {
        let problem = if is_unintended(*test) { "panics" } else { "" };
        let text = format!(r#"{{\"a text of one character\": \"{problem}\"}}"#);
        println!("\n{}", format!(r#"TOKEN["result", "{name}", "varied", "{problem}", "{text}"]"#));
    }
    println!("\nTOKEN[\"end\"]");
}
