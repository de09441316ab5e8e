//! Exec, attach and port-forward through the streaming server, as a kubelet asks for them.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use cri::v1::*;
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use streaming::{
    proxy,
    remote_command::{Options, Remote},
    spdy::{Connection, Headers, Role},
    upgrade,
    websocket::{self, Channels, Form},
};
use tokio::net::TcpStream;

use super::server::{Server, container, with_server};

const PIPES: Options = Options {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};
const TERMINAL: Options = Options {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: true,
};

#[test]
fn commands_and_attachments_have_streams_with_our_oci_command() {
    with_server(&[], sessions);
}

#[test]
fn commands_and_attachments_have_streams_with_runc() {
    with_server(&["/usr/sbin/runc"], sessions);
}

async fn sessions(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("streams", true);
    let sandbox = server.run_sandbox(&pod).await?;
    let id = server
        .run(&sandbox, &pod, container("main", &["sleep", "1000"]))
        .await?;
    exec_over_spdy(server, &id).await?;
    exec_over_websocket(server, &id).await?;
    exec_on_a_terminal(server, &id).await?;
    exec_failures(server, &id).await?;
    attach_to_pipes(server, &sandbox, &pod).await?;
    attach_to_a_terminal(server, &sandbox, &pod).await?;
    server.remove_sandbox(&sandbox).await
}

async fn exec_over_spdy(server: &mut Server, id: &str) -> Result<()> {
    let script = "cat; echo done; echo oops >&2; exit 3";
    let mut remote = remote(exec(server, id, &["sh", "-c", script], PIPES).await?, PIPES).await?;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let (stdin, bytes) = (
        remote.stdin.take().context("stdin")?,
        Bytes::from(sent.clone()),
    );
    let sending = tokio::spawn(async move {
        stdin.send(bytes).await?;
        stdin.finish().await
    });
    let out = remote
        .stdout
        .take()
        .context("stdout")?
        .collect(1 << 22)
        .await;
    ensure!(out.len() == sent.len() + 5, "{}", out.len());
    ensure!(out.starts_with(&sent) && out.ends_with(b"done\n"));
    let err = remote.stderr.take().context("stderr")?.collect(100).await;
    ensure!(err == b"oops\n", "{err:?}");
    let outcome = String::from_utf8(remote.outcome().await)?;
    ensure!(
        outcome.contains(r#"{"reason":"ExitCode","message":"3"}"#),
        "{outcome}"
    );
    sending.await??;
    Ok(())
}

async fn exec_over_websocket(server: &mut Server, id: &str) -> Result<()> {
    let url = exec(server, id, &["sh", "-c", "cat; exit 0"], PIPES).await?;
    let io = upgraded(&url, Some("v5.channel.k8s.io")).await?;
    let form = Form::of("v5.channel.k8s.io");
    let mut client = Channels::start(io, websocket::Role::Client, form, 5).await;
    client.sink(0).send("over the web\n".into()).await?;
    client.sink(0).finish().await?;
    let out = client.take_source(1).context("stdout")?.collect(100).await;
    ensure!(out == b"over the web\n", "{out:?}");
    let outcome = client.take_source(3).context("error")?.collect(1000).await;
    ensure!(
        outcome == br#"{"metadata":{},"status":"Success"}"#,
        "{outcome:?}"
    );
    Ok(())
}

async fn exec_on_a_terminal(server: &mut Server, id: &str) -> Result<()> {
    // The size arrives on a channel of its own, in no order with the input.
    let script = "tty; echo $TERM; read line; for i in $(seq 600); do \
        [ \"$(stty size)\" = '45 123' ] && break; sleep 0.1; done; stty size; echo got $line; exit 4";
    let url = exec(server, id, &["sh", "-c", script], TERMINAL).await?;
    let mut remote = remote(url, TERMINAL).await?;
    let resize = remote.resize.take().context("resize")?;
    resize.send(r#"{"Width":123,"Height":45}"#.into()).await?;
    let mut stdout = remote.stdout.take().context("stdout")?;
    let mut seen = String::new();
    while !seen.contains("xterm") {
        let bytes = stdout.next().await.with_context(|| seen.clone())?;
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    let stdin = remote.stdin.take().context("stdin")?;
    stdin.send("word\n".into()).await?;
    seen.push_str(&String::from_utf8_lossy(&stdout.collect(10_000).await));
    for part in ["/dev/pts/", "45 123", "got word"] {
        ensure!(seen.contains(part), "{part} is not in {seen}");
    }
    let outcome = String::from_utf8(remote.outcome().await)?;
    ensure!(outcome.contains(r#""message":"4""#), "{outcome}");
    Ok(())
}

async fn exec_failures(server: &mut Server, id: &str) -> Result<()> {
    for options in [PIPES, TERMINAL] {
        let url = exec(server, id, &["no-such-command"], options).await?;
        let outcome = String::from_utf8(remote(url, options).await?.outcome().await)?;
        ensure!(outcome.contains("InternalError"), "{outcome}");
        ensure!(outcome.contains("no-such-command"), "{outcome}");
    }
    let url = exec(server, id, &["true"], PIPES).await?;
    remote(url.clone(), PIPES).await?.outcome().await;
    ensure!(remote(url, PIPES).await.is_err(), "a URL is good once");
    let request = ExecRequest {
        container_id: id.into(),
        cmd: vec!["true".into()],
        ..Default::default()
    };
    let refused = server.runtime.exec(request).await;
    ensure!(refused.is_err_and(|status| status.code() == tonic::Code::InvalidArgument));
    Ok(())
}

async fn attach_to_pipes(server: &mut Server, sandbox: &str, pod: &PodSandboxConfig) -> Result<()> {
    let config = ContainerConfig {
        stdin: true,
        stdin_once: true,
        ..container("reader", &["sh", "-c", "cat; echo the end >&2; exit 5"])
    };
    let id = server.run(sandbox, pod, config).await?;
    let mut first = remote(attach(server, &id, PIPES).await?, PIPES).await?;
    let stdin = first.stdin.take().context("stdin")?;
    let mut stdout = first.stdout.take().context("stdout")?;
    stdin.send("hello\n".into()).await?;
    ensure!(stdout.next().await.as_deref() == Some(&b"hello\n"[..]));
    // Two see the same.
    let watching = Options {
        stdin: false,
        ..PIPES
    };
    let mut second = remote(attach(server, &id, watching).await?, watching).await?;
    let mut other = second.stdout.take().context("stdout")?;
    // The second hears only what is said after it came, which nothing tells us.
    let mut heard = None;
    for _ in 0..300 {
        stdin.send("again\n".into()).await?;
        ensure!(stdout.next().await.as_deref() == Some(&b"again\n"[..]));
        let soon = std::time::Duration::from_millis(200);
        if let Ok(bytes) = tokio::time::timeout(soon, other.next()).await {
            heard = bytes;
            break;
        }
    }
    let heard = heard.context("the second heard nothing")?;
    ensure!(heard.starts_with(b"again\n"), "{heard:?}");
    stdin.finish().await?;
    let err = first.stderr.take().context("stderr")?.collect(100).await;
    ensure!(err == b"the end\n", "{err:?}");
    let outcome = String::from_utf8(first.outcome().await)?;
    ensure!(outcome.contains("Success"), "{outcome}");
    ensure!(server.wait_exit(&id).await?.exit_code == 5);
    let mut log = server.log("streams", "reader.log");
    log.dedup();
    ensure!(
        log == ["stdout F hello", "stdout F again", "stderr F the end"],
        "{log:?}"
    );
    Ok(())
}

async fn attach_to_a_terminal(
    server: &mut Server,
    sandbox: &str,
    pod: &PodSandboxConfig,
) -> Result<()> {
    let config = ContainerConfig {
        stdin: true,
        tty: true,
        ..container(
            "shell",
            &[
                "sh",
                "-c",
                "read line; tty; echo got $line; read line; exit 6",
            ],
        )
    };
    let id = server.run(sandbox, pod, config).await?;
    let mut remote = remote(attach(server, &id, TERMINAL).await?, TERMINAL).await?;
    let stdin = remote.stdin.take().context("stdin")?;
    stdin.send("one\n".into()).await?;
    let mut stdout = remote.stdout.take().context("stdout")?;
    let mut seen = String::new();
    while !seen.contains("got one") {
        let bytes = stdout.next().await.with_context(|| seen.clone())?;
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    ensure!(seen.contains("/dev/pts/0"), "{seen}");
    stdin.send("two\n".into()).await?;
    stdout.collect(1000).await;
    ensure!(server.wait_exit(&id).await?.exit_code == 6);
    let log = server.log("streams", "shell.log");
    ensure!(log.iter().any(|line| line.contains("got one")), "{log:?}");
    Ok(())
}

#[test]
fn ports_are_forwarded_into_the_pods_network() {
    with_server(&[], async |server| {
        let bridge = server.configure_bridge()?;
        let result = forward(server).await;
        let _ = std::process::Command::new("ip")
            .args(["link", "delete", &bridge])
            .status();
        result
    });
}

async fn forward(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("ports", false);
    let sandbox = server.run_sandbox(&pod).await?;
    // Only on loopback: nothing from outside reaches it.
    let script = "echo inside > /tmp/index.html; httpd -f -p 127.0.0.1:8099 -h /tmp";
    server
        .run(&sandbox, &pod, container("web", &["sh", "-c", script]))
        .await?;
    let request = PortForwardRequest {
        pod_sandbox_id: sandbox.clone(),
        port: vec![],
    };
    let url = server.runtime.port_forward(request).await?.into_inner().url;
    let (client, _) = Connection::start(upgraded(&url, None).await?, Role::Client);
    let mut answer = Vec::new();
    for attempt in 0..1200 {
        let open = async |kind: &str, port: &str| {
            let request = format!("{attempt}-{port}");
            let pairs = [
                ("streamtype", kind),
                ("port", port),
                ("requestid", request.as_str()),
            ];
            client.open(Headers::new(&pairs)).await
        };
        let mut error = open("error", "8099").await?;
        let mut data = open("data", "8099").await?;
        data.sink.send("GET / HTTP/1.0\r\n\r\n".into()).await?;
        answer = data.source.collect(10_000).await;
        if !answer.is_empty() {
            break;
        }
        // The server in the pod is not there yet.
        error.source.collect(1000).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let answer = String::from_utf8(answer)?;
    ensure!(answer.ends_with("inside\n"), "{answer}");
    let open = async |kind: &str| {
        let pairs = [
            ("streamtype", kind),
            ("port", "9"),
            ("requestid", "refused"),
        ];
        client.open(Headers::new(&pairs)).await
    };
    let (mut error, _data) = (open("error").await?, open("data").await?);
    let told = String::from_utf8(error.source.collect(1000).await)?;
    ensure!(
        told.contains("error forwarding port 9") && told.contains("refused"),
        "{told}"
    );
    client.end().await;
    server.remove_sandbox(&sandbox).await
}

async fn exec(server: &mut Server, id: &str, command: &[&str], options: Options) -> Result<String> {
    let request = ExecRequest {
        container_id: id.into(),
        cmd: command.iter().map(|word| (*word).to_owned()).collect(),
        tty: options.tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
    };
    Ok(server.runtime.exec(request).await?.into_inner().url)
}

async fn attach(server: &mut Server, id: &str, options: Options) -> Result<String> {
    let request = AttachRequest {
        container_id: id.into(),
        tty: options.tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
    };
    Ok(server.runtime.attach(request).await?.into_inner().url)
}

async fn remote(url: String, options: Options) -> Result<Remote> {
    Ok(Remote::start(upgraded(&url, None).await?, options).await?)
}

/// A connection to the URL in SPDY, or in WebSocket with the named subprotocol.
async fn upgraded(url: &str, websocket: Option<&'static str>) -> Result<TokioIo<Upgraded>> {
    let rest = url.strip_prefix("http://").context("a URL")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    let mut request = http::Request::get(format!("/{path}"))
        .header("host", host)
        .body(Empty::<Bytes>::new())?;
    let headers = request.headers_mut();
    match websocket {
        None => {
            let protocol = match path.starts_with("portforward") {
                true => "portforward.k8s.io",
                false => Remote::PROTOCOL,
            };
            upgrade::ask_for_spdy(headers, &[protocol.to_owned()]);
        }
        Some(protocol) => {
            headers.insert("connection", "Upgrade".parse()?);
            headers.insert("upgrade", "websocket".parse()?);
            headers.insert("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==".parse()?);
            headers.insert("sec-websocket-version", "13".parse()?);
            headers.insert("sec-websocket-protocol", protocol.parse()?);
        }
    }
    let response = proxy::ask(TcpStream::connect(host).await?, request).await?;
    ensure!(response.status() == 101, "{:?}", response.status());
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}
