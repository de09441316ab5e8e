//! Configurations, right and wrong.

use super::*;

fn parse(rest: &str) -> Result<Configuration, String> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{rest}");
    Configuration::parse(text.as_bytes()).map_err(|error| environment::chain(&error).to_string())
}

#[test]
fn what_is_not_said_has_defaults() {
    let configuration = parse("").expect("a configuration");
    assert_eq!(configuration.profiles.len(), 1);
    assert_eq!(configuration.profiles[0].name(), "default-scheduler");
    assert_eq!(configuration.longest_backoff, Duration::from_secs(10));
    let configuration = parse(
        "podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 7\nleaderElection: {leaderElect: true}\nclientConnection: {qps: 5}\nprofiles: [{schedulerName: a}, {schedulerName: b}]",
    )
    .expect("a configuration");
    assert_eq!(configuration.first_backoff, Duration::from_secs(2));
    assert_eq!(configuration.longest_backoff, Duration::from_secs(7));
    let names: Vec<&str> = configuration.profiles.iter().map(Profile::name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn unknown_fields_are_refused_with_their_place() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text).expect_err(text), expected);
    };
    check(
        "profiles: [{plugins: {score: {enable: []}}}]",
        "strict decoding error: unknown field \"profiles[0].plugins.score.enable\"",
    );
    check(
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {strategy: {}}}]}]",
        "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeResourcesFit: strict decoding error: unknown field \"strategy\"",
    );
    let other = Configuration::parse(b"apiVersion: v1\nkind: Pod").expect_err("another kind");
    assert_eq!(
        other.to_string(),
        "no kind \"Pod\" is registered for version \"v1\""
    );
}

#[test]
fn extenders_are_rejected() {
    let rejected = parse("extenders: [{urlPrefix: 'http://127.0.0.1:1'}]").err();
    let expected = "extenders: Forbidden: are not supported by this scheduler";
    assert_eq!(rejected.as_deref(), Some(expected));
}

#[test]
fn wrong_values_are_refused_in_upstreams_words() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text).expect_err(text), expected);
    };
    check(
        "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 1",
        "podMaxBackoffSeconds: Invalid value: 1: must be greater than or equal to PodInitialBackoffSeconds",
    );
    check(
        "profiles: [{}, {}]",
        "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"",
    );
    let args = |plugin: &str, args: &str| {
        format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]")
    };
    let place = "profiles[0].pluginConfig[0].args";
    check(
        &args("InterPodAffinity", "{hardPodAffinityWeight: 101}"),
        &format!("{place}.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
    );
    check(
        &args("NodeResourcesFit", "{scoringStrategy: {type: Best}}"),
        &format!(
            "{place}.scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\""
        ),
    );
    check(
        &args(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
        ),
        &format!(
            "{place}.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio"
        ),
    );
    check(
        &args(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 50, score: 11}, {utilization: 0, score: 0}]}}}",
        ),
        &format!(
            "[{place}.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 0: values must be sorted in increasing order, {place}.scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]]"
        ),
    );
    check(
        &args(
            "PodTopologySpread",
            "{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]}",
        ),
        &format!(
            "{place}.defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"
        ),
    );
    check(
        &args(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        ),
        &format!(
            "[{place}.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, {place}.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage]"
        ),
    );
}
