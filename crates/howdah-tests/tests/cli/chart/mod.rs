//! The Helm chart: helm lints and renders it with several sets of values, kubernetes-validate checks the result against
//! Kubernetes' own schemas, and the server checks the configuration in it. Both tools are installed by
//! scripts/setup-tools.sh.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::tools::tool;

/// The oldest and the newest release of Kubernetes against which the chart is validated.
const KUBERNETES: [&str; 2] = ["1.28", "1.37"];

fn chart() -> PathBuf {
    repository().join("packaging/helm/howdah")
}

/// Returns the path of a file of values beside this test.
fn values(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/chart");
    directory.join(format!("{name}.yaml"))
}

fn helm(arguments: &[&str], more: &[&str]) -> Output {
    let mut command = tool("bin/helm");
    command.args(arguments).arg(chart()).args(more);
    command.output().expect("helm starts")
}

fn text(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn rendered(more: &[&str]) -> String {
    let more = [&["--kube-version", "1.34.0"], more].concat();
    let output = helm(&["template", "shop"], &more);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// Returns the arguments for three sets of values: the defaults, every option, and as few options as possible.
fn value_sets() -> [Vec<String>; 3] {
    let file = |name| vec!["--values".to_owned(), values(name).display().to_string()];
    [Vec::new(), file("everything"), file("nothing")]
}

#[test]
fn chart_is_valid_for_kubernetes_with_any_values() {
    let scratch = Scratch::new("chart");
    let output = helm(&["lint", "--strict"], &[]);
    assert!(output.status.success(), "{}", text(&output));
    for (number, values) in value_sets().iter().enumerate() {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let rendered = rendered(&values);
        let file = scratch.write(format!("{number}.yaml"), &rendered);
        for version in KUBERNETES {
            let mut validate = tool("venv/bin/kubernetes-validate");
            validate.args(["--strict", "--kubernetes-version", version]);
            let output = validate
                .arg(&file)
                .output()
                .expect("kubernetes-validate starts");
            let said = text(&output);
            assert!(output.status.success(), "{number}, {version}: {said}");
            assert!(
                said.contains("passed for resource deployment/shop-howdah"),
                "{said}"
            );
        }
    }
    // The validator does detect errors.
    let wrong = rendered(&[]).replace("containerPort: 8080", "containerPort: none");
    let file = scratch.write("wrong.yaml", &wrong);
    let mut validate = tool("venv/bin/kubernetes-validate");
    let output = validate
        .args(["--strict"])
        .arg(&file)
        .output()
        .expect("kubernetes-validate starts");
    assert!(!output.status.success(), "{}", text(&output));
}

#[test]
fn wrong_value_is_refused_by_name() {
    for (value, name) in [
        ("replicas=two", "replicas"),
        ("image.repository=", "repository"),
        ("drainSeconds=0", "drainSeconds"),
        ("replicaCount=2", "replicaCount"),
        ("service.port=70000", "port"),
        ("autoscaling.busyShare=2", "busyShare"),
        ("trustedProxies={all}", "trustedProxies"),
        ("fleet.enabled=true", "fleet.valkey"),
        ("fleet.valkey=http://valkey", "valkey"),
    ] {
        let output = helm(
            &["template", "shop"],
            &["--kube-version", "1.34.0", "--set", value],
        );
        let said = text(&output);
        assert!(
            !output.status.success() && said.contains(name),
            "{value}: {said}"
        );
    }
}

#[test]
fn pod_that_ends_has_time_for_its_requests_and_a_new_configuration_starts_new_pods() {
    let yaml = rendered(&["--set", "drainSeconds=90,preStopSeconds=7"]);
    for line in [
        "terminationGracePeriodSeconds: 107",
        "command: [sleep, \"7\"]",
        "{ name: HOWDAH_TIMEOUTS_DRAIN, value: \"90s\" }",
        "{ name: HOWDAH_TIMEOUTS_STOP, value: \"90s\" }",
        "readOnlyRootFilesystem: true",
        "runAsNonRoot: true",
    ] {
        assert!(yaml.contains(line), "{line} in {yaml}");
    }
    let checksum = |yaml: &str| {
        let line = yaml.lines().find(|line| line.contains("checksum/config"));
        line.expect("a checksum").to_owned()
    };
    let other = rendered(&["--set", "config=listen = 1"]);
    assert_ne!(checksum(&yaml), checksum(&other));
}

#[test]
fn pods_are_members_of_a_fleet_by_their_names() {
    let on = "fleet.enabled=true";
    let yaml = rendered(&["--set", on, "--set", "fleet.valkey=redis://valkey:6379"]);
    for line in [
        "{ name: HOWDAH_FLEET_NAME, value: \"shop-howdah\" }",
        "{ name: HOWDAH_FLEET_VALKEY, value: \"redis://valkey:6379\" }",
        "valueFrom: { fieldRef: { fieldPath: metadata.name } }",
    ] {
        assert!(yaml.contains(line), "{line} in {yaml}");
    }
    let yaml = rendered(&["--set", on, "--set", "fleet.valkeySecret.name=valkey"]);
    assert!(
        yaml.contains("secretKeyRef:\n                  key: url\n                  name: valkey"),
        "{yaml}"
    );
    let yaml = rendered(&["-f", "tests/cli/chart/everything.yaml"]);
    assert!(yaml.contains("{ name: HOWDAH_FLEET_FORGET_AFTER, value: \"10m\" }"));
    assert!(!rendered(&[]).contains("FLEET"));
}

#[test]
fn server_takes_the_configuration_and_the_variables_in_it() {
    for values in value_sets() {
        let scratch = Scratch::new("chart-configuration");
        scratch.write("app/index.php", "<?php");
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let yaml = rendered(&values);
        let lines = yaml
            .lines()
            .skip_while(|line| line.trim() != "howdah.toml: |");
        let lines = lines.skip(1).map_while(|line| line.strip_prefix("    "));
        let app = scratch.join("app").display().to_string();
        let toml = lines.collect::<Vec<_>>().join("\n").replace("/app", &app);
        assert!(toml.contains("recognise = true"), "{toml}");
        // In the container, the user that starts the server is not root.
        let user = match rustix::process::geteuid().is_root() {
            true => "user = \"root\"\n",
            false => "",
        };
        let file = scratch.write("howdah.toml", format!("{user}{toml}"));
        let variables: Vec<(String, String)> = yaml.lines().filter_map(variable).collect();
        assert!(variables.len() >= 6, "{variables:?}");
        let mut check = Command::new(howdah_program());
        check.args(["check", "--config"]).arg(&file).envs(variables);
        let output = check.output().expect("howdah starts");
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(
            !said.contains("Setting") && said.contains("no mistakes"),
            "{said}"
        );
    }
}

/// Parses a variable in a line such as `- { name: HOWDAH_LISTEN, value: ":8080" }`, and replaces its address by one of
/// loopback.
fn variable(line: &str) -> Option<(String, String)> {
    let line = line.trim().strip_prefix("- { name: HOWDAH_")?;
    let (name, rest) = line.split_once(", value: \"")?;
    let value = rest.strip_suffix("\" }")?;
    let value = value.replace(":8080", "127.0.0.1:8080");
    Some((format!("HOWDAH_{name}"), value))
}

#[test]
fn autoscalers_metrics_are_made_of_those_that_the_server_exports() {
    let rules = std::fs::read_to_string(chart().join("prometheus-adapter.yaml")).expect("rules");
    let all = rendered(&["--values", &values("everything").display().to_string()]);
    // The reference is generated from the table of metrics; another test compares the two.
    let reference = repository().join("docs/metrics.md");
    let reference = std::fs::read_to_string(reference).expect("the reference of metrics");
    for metric in ["howdah_queue", "howdah_busy_share"] {
        assert!(rules.contains(&format!("as: {metric}")), "{metric}");
        assert!(all.contains(&format!("name: {metric}")), "{metric}");
    }
    let named = rules.split("howdah_pool_").skip(1);
    for rest in named {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let name = format!("`howdah_pool_{}`", &rest[..end.expect("an end")]);
        assert!(reference.contains(&name), "{name}");
    }
}
