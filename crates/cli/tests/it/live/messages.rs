//! What tasks exchange, from the recorder to a prediction that is judged: `record --messages on`,
//! `show --messages`, and `confirm --replay messages`.

use super::*;

/// A shell that writes lines into a pipe and a `cat` that reads them, until they are killed.
const PIPE: [&str; 4] = ["--", "sh", "-c", "while :; do echo line; done | cat > /dev/null"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn messages_are_recorded_shown_and_confirmed() {
    let Some(_turn) = turn("messages_are_recorded_shown_and_confirmed") else { return };
    settles(3, || {
        let folder = Folder::new("live-messages");
        let file = folder.0.join("pipe.slt").display().to_string();
        let record = ["record", "--messages", "on", "--for", "500ms", "--json", "-o", &file];
        let recorded = schedlab(&folder, &[&record[..], &PIPE].concat());
        assert_eq!(recorded.code, 0, "{recorded:?}");
        let told = json(&recorded.stdout);
        assert_eq!((&told["facts_lost"], &told["fact_bytes_missing"]), (&0.into(), &0.into()));
        assert!(told["facts"].as_u64() > Some(100), "{told}");

        let shown = json(&schedlab(&folder, &["show", &file, "--messages", "--json"]).stdout);
        let pairs = &shown["analyses"][0]["tables"]["pairs"];
        let pipe = pairs.as_array().into_iter().flatten().find(|row| {
            (&row["from"], &row["to"], &row["over"])
                == (&"sh".into(), &"cat".into(), &"pipe".into())
        });
        let pipe = pipe.unwrap_or_else(|| panic!("no lines from sh to cat: {shown}"));
        assert!(pipe["messages"].as_u64() > Some(50) && pipe["bytes_each"] == 5, "{pipe}");

        let variant = ["--variant", "nice: cat nice=5", "--rounds", "1", "--for", "500ms"];
        let confirm = ["confirm", &file, "--replay", "messages", "--json"];
        let confirmed = schedlab(&folder, &[&confirm[..], &variant, &PIPE].concat());
        // 3: the replay of so short a recording is not trusted; what was measured is there.
        assert!([0, 3].contains(&confirmed.code), "{confirmed:?}");
        let told = json(&confirmed.stdout);
        assert_eq!(told["replay"], "messages");
        for (setting, name) in [(0, "default"), (1, "nice")] {
            let setting = &told["settings"][setting];
            let tasks = setting["tasks"].as_array().into_iter().flatten();
            let cat = tasks.filter(|task| task["name"] == "cat");
            let share = cat.map(|task| task["cells"][0]["live"]["median"].as_f64()).next();
            assert!(setting["name"] == name && share.flatten() > Some(0.0), "{setting}");
        }
    });
}
