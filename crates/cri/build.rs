//! Compiles `proto/cri.proto` without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/cri.proto");
    let descriptors = protox::compile(["proto/cri.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // Its Debug is written by hand: credentials must not reach a log.
        .skip_debug([".runtime.v1.AuthConfig"])
        .compile_fds(descriptors)?;
    Ok(())
}
