//! Runs the scenario of `testkit::swap` on a running cluster and writes the states of its objects.
//! Usage: swap KUBECONFIG DIRECTORY NODE,...      the nodes to simulate, such as node-1,node-2

use anyhow::{Context, Result, bail};

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, directory, fakes] = arguments.as_slice() else {
        bail!("usage: swap KUBECONFIG DIRECTORY NODE,...");
    };
    let client = client::connect::from_kubeconfig_as(kubeconfig, "swap").await?;
    let fakes: Vec<String> = fakes.split(',').map(str::to_owned).collect();
    std::fs::create_dir_all(directory).with_context(|| directory.clone())?;
    let states = testkit::swap::run(client, &fakes).await?;
    for (number, (name, state)) in states.iter().enumerate() {
        let file = format!("{directory}/{number} {name}.txt");
        let mut text = String::new();
        for line in state {
            text.push_str(line);
            text.push('\n');
        }
        std::fs::write(&file, text).with_context(|| file.clone())?;
        println!("  state {name}: {} objects", state.len());
    }
    Ok(())
}
