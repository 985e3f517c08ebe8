from pytest_ftgate import command, ftgate, threads

RUST = command(
    "rust",
    ["{folder}/native/target/release/shared-set", "--workers", "{workers}", "--seconds", "{seconds}"],
    build=["cargo", "build", "--release", "--quiet", "--manifest-path", "{folder}/native/Cargo.toml"],
)


@ftgate.contract("threads[3.14t].ops_per_s > 0.4 * command[rust].ops_per_s")
@ftgate.compare(threads, RUST, workers=[1, 8], duration=5, programs={"cargo": "apt install cargo"})
def test_shared_set(worker): ...
