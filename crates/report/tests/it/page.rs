//! The page as text: self-contained, escaped, the same every time.

use schedlab_report::*;

#[test]
fn a_page_needs_nothing_else() {
    let mut page = Page::new("A page");
    page.verdict("It is so.", "Surely.");
    let html = page.render().unwrap();
    for foreign in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.find("It is so.").unwrap() < html.find("Surely.").unwrap());
    assert!(html.len() < 140_000, "{} bytes without data", html.len());
    assert_eq!(html, page.render().unwrap());
}

#[test]
fn text_is_escaped_everywhere() {
    let evil = "</script></style><img src=x onerror=alert(1)>\"'&";
    let mut page = Page::new(evil);
    page.subtitle(evil);
    page.verdict(evil, evil);
    page.footer(evil);
    let (head, text) = (evil.to_owned(), evil.to_owned());
    let (from, to) = (schedlab_model::Ns(1), schedlab_model::Ns(2));
    let cpu = schedlab_model::CpuId(0);
    page.waits(evil, vec![LaneWait { run: 0, cpu, from, to, head, text }]);
    let mut section = Section::new(evil).lead(evil);
    section.push(Part::Text(evil.to_owned()));
    section.push(Part::List(vec![evil.to_owned()]));
    section.push(Lanes {
        tasks: vec![LaneTask { name: evil.to_owned(), class: evil.to_owned() }],
        runs: vec![],
        own: vec![],
    });
    page.push(section);
    let html = page.render().unwrap();
    assert!(!html.contains("<img"));
    assert_eq!(html.matches("</script>").count(), 2, "the script and the data of the lanes");
}

#[test]
fn empty_sections_are_left_out() {
    let mut page = Page::new("A page");
    page.push(Section::new("Nothing here"));
    assert!(!page.render().unwrap().contains("Nothing here"));
}

#[test]
fn the_example_makes_a_page() {
    let html = crate::example::page().render().unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("50.0 %"));
    crate::example::main().unwrap();
}
