//! What is not for this page: other hosts, pages of other sites, no token, paths, large bodies.

use super::super::schema::fits;
use super::{REDIS, Server, idle};
use std::io::Read as _;
use std::process::Command;

#[test]
fn other_hosts_other_sites_and_no_token_are_refused() {
    let server = Server::new(&[REDIS]);
    let (port, token) = (server.port, &server.token);
    let own = format!("127.0.0.1:{port}");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let other = "0".repeat(token.len());
    for (host, more, status) in [
        (own.as_str(), bearer.clone(), 200),
        (&format!("localhost:{port}"), bearer.clone(), 200),
        (&own, format!("{bearer}Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n"), 200),
        // Without the token, or with another.
        (&own, String::new(), 401),
        (&own, format!("Authorization: Bearer {other}\r\n"), 401),
        (&own, format!("Authorization: Bearer {}\r\n", &token[1..]), 401),
        (&own, "Authorization: Bearer \r\n".to_owned(), 401),
        (&own, format!("Authorization: Basic {token}\r\n"), 401),
        (&own, format!("Cookie: token={token}\r\n"), 401),
        // A name that was given this address, and another port.
        ("evil.example", bearer.clone(), 421),
        (&format!("evil.example:{port}"), bearer.clone(), 421),
        ("127.0.0.1", bearer.clone(), 421),
        ("127.0.0.1:1", bearer.clone(), 421),
        (&format!("127.0.0.1:{port}.evil.example"), bearer.clone(), 421),
        (&own, format!("{bearer}Host: evil.example\r\n"), 421),
        // A page of another site.
        (&own, format!("{bearer}Origin: http://evil.example\r\n"), 403),
        (&own, format!("{bearer}Origin: http://127.0.0.1:1\r\n"), 403),
        (&own, format!("{bearer}Origin: https://{own}\r\n"), 403),
        (&own, format!("{bearer}Origin: null\r\n"), 403),
        (&own, format!("{bearer}Sec-Fetch-Site: cross-site\r\n"), 403),
        (&own, format!("{bearer}Sec-Fetch-Site: same-site\r\n"), 403),
    ] {
        let lines = format!("GET /api/1/inputs HTTP/1.1\r\nHost: {host}\r\n{more}");
        let answered = server.raw(&lines, b"");
        assert_eq!(answered.status, status, "{lines}{answered:?}");
        if status != 200 {
            fits("a refusal", &answered.body);
            assert!(!answered.body.contains("redis"), "{answered:?}");
        }
    }
    let without_host = format!("GET /api/1/inputs HTTP/1.1\r\n{bearer}");
    assert_eq!(server.raw(&without_host, b"").status, 421);
    // The page itself is for this host only, too.
    assert_eq!(server.raw("GET / HTTP/1.1\r\nHost: evil.example\r\n", b"").status, 421);
}

#[test]
fn a_page_names_no_path() {
    let server = Server::new(&[REDIS]);
    for path in [
        "/etc/passwd",
        "//etc/passwd",
        "/../../../etc/passwd",
        "/workbench.js/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/1/inputs/%2fetc%2fpasswd/overview",
        "/api/1/inputs/..%2f..%2fetc%2fpasswd/overview",
        "/api/1/inputs/g:..%2f..%2fetc%2fpasswd/overview",
        "/api/1/inputs/recordings%2ftwo-yes.slt/overview",
        "/api/1/inputs/f9/overview",
        "/api/1/inputs/f0/../../x",
        "/api/2/inputs",
        "/favicon.ico",
    ] {
        let answered = server.get(path);
        assert_eq!(answered.status, 404, "{path}: {answered:?}");
        assert!(!answered.body.contains("root:"), "{path}");
    }
    for option in [
        r#"["check", "a=/etc/passwd"]"#,
        r#"["client-log", "/etc/passwd"]"#,
        r#"["kernel-btf", "/etc/passwd"]"#,
        r#"["scheduler", "bpf:/etc/passwd"]"#,
        r#"["variant", "/batch guest=bpf:/etc/passwd"]"#,
        r#"["report", "/tmp/x"]"#,
        r#"["output", "/tmp/x"]"#,
    ] {
        let question = format!(r#"{{"input": "f0", "options": [{option}], "seeds": [1]}}"#);
        let answered = server.post("/api/1/ask", question.as_bytes());
        let failed = answered.status == 422 || answered.body.contains("event: failed");
        assert!(failed && !answered.body.contains("root:"), "{option}: {answered:?}");
        assert!(!answered.body.contains("event: answer"), "{option}: {answered:?}");
    }
}

#[test]
fn what_is_too_large_or_no_question_is_refused() {
    let server = Server::new(&[REDIS]);
    let large = vec![b'x'; 100 << 10];
    assert_eq!(server.post("/api/1/ask", &large).status, 413);
    let long = format!("/api/1/inputs?{}", "x".repeat(9 << 10));
    assert_eq!(server.get(&long).status, 414);
    for (body, status) in [
        ("", 400),
        ("{", 400),
        (r#"{"input": "f0", "colour": "red"}"#, 400),
        (r#"{"input": "f0", "options": [["colour", "red"]]}"#, 422),
        (r#"{"input": "f9"}"#, 404),
        (r#"{"input": "f0", "seeds": [0]}"#, 422),
    ] {
        let answered = server.post("/api/1/ask", body.as_bytes());
        assert_eq!(answered.status, status, "{body}: {answered:?}");
        fits(body, &answered.body);
    }
    assert_eq!(server.raw(&server.lines("PUT", "/api/1/inputs", 0), b"").status, 404);
    assert_eq!(server.raw(&server.lines("POST", "/workbench.js", 0), b"").status, 405);
    assert_eq!(server.post("/api/1/token", b"guessed").status, 401);
    let query = server.get("/api/1/inputs/f0/overview?from=9m");
    assert!(query.status == 422 && query.body.contains("--from 540s"), "{query:?}");
}

/// No script of another place, nothing inline, no frame; the token is in no file.
#[test]
fn the_page_keeps_to_itself() {
    let server = Server::new(&[]);
    for path in ["/", "/workbench.js", "/workbench.css"] {
        let host = format!("Host: 127.0.0.1:{}\r\n", server.port);
        let answered = server.raw(&format!("GET {path} HTTP/1.1\r\n{host}"), b"");
        assert_eq!(answered.status, 200, "{path}");
        for header in [
            "Content-Security-Policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Resource-Policy: same-origin",
        ] {
            assert!(answered.head.contains(header), "{path}: {}", answered.head);
        }
        assert!(!answered.head.contains("unsafe"), "{}", answered.head);
        assert!(!answered.body.contains(&server.token) && answered.body.len() > 300, "{path}");
        // A script that is inline, or comes from elsewhere, would not run.
        assert!(!answered.body.contains("<script>") && !answered.body.contains("src=\"http"));
    }
}

#[test]
fn it_listens_on_loopback_only_and_ends_when_asked() {
    let mut server = Server::new(&[REDIS]);
    let line = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X} ", server.port);
    let listens: Vec<&str> = line.lines().filter(|line| line.contains(&port)).collect();
    let local = |line: &&str| line.split_whitespace().nth(1).unwrap().starts_with("0100007F:");
    let own = |line: &&&str| line.split_whitespace().nth(1).unwrap().ends_with(port.trim());
    assert!(listens.iter().any(local), "{line}");
    assert!(listens.iter().filter(own).all(local), "{listens:?}");
    // A question that is being answered does not hold it up.
    let body = idle("long", &[100]).to_string();
    let mut stream = server.connect();
    let lines = server.lines("POST", "/api/1/ask", body.len());
    std::io::Write::write_all(&mut stream, format!("{lines}\r\n{body}").as_bytes()).unwrap();
    let mut some = [0; 64];
    assert!(stream.read(&mut some).unwrap() > 0);
    let kill = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_opened_is_said_at_once() {
    for (arguments, part) in [
        (&["ui", "--no-open", "no-such.slt"][..], "no such file"),
        (&["ui", "--no-open", "two-hog"], "did you mean"),
        (&["ui", "--no-open", "crates/ui/src"], "there is no recording in it"),
        (&["ui", "--no-open", "--port", "0"], "1..=65535"),
        (&["ui", "--no-open", "--port", "x"], "invalid"),
    ] {
        let ran = super::super::schedlab(arguments);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(part), "{arguments:?}: {ran:?}");
    }
    let server = Server::new(&[]);
    let port = server.port.to_string();
    let ran = super::super::schedlab(&["ui", "--no-open", "--port", &port]);
    assert!(ran.code == 2 && ran.stderr.contains("choose another one"), "{ran:?}");
}
