//! Compiles the protocol files, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = protox::compile(["cri.proto", "events.proto", "tasks.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}
