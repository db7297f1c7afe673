# What people run often. CI runs `.ci/run`, which calls the same commands and needs no just.

# What there is.
default:
    @just --list

# Formatting, lints, licences and sources, and whether the committed components fit their sources.
check:
    cargo fmt --all --check
    cargo fmt --manifest-path guest-tools/Cargo.toml --all --check
    guest-tools/build --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo deny --log-level error check bans licenses sources

# Every test of the host.
test *ARGS:
    cargo test {{ ARGS }}

# The guests: native tests, components into guest-tools/dist and examples/tool-rust/dist.
guests:
    cargo test --manifest-path guest-tools/Cargo.toml
    guest-tools/build
    guest-tools/build --example

# A turn on the real stack, offline.
demo *ARGS:
    cargo run -- demo {{ ARGS }}

# Real processes, killed and started again: `just crash`, `just crash rounds=200`, `just crash rounds=200 seed=7`.
crash rounds="1000" seed="1":
    WHARF_CRASH_ROUNDS={{ trim_start_match(rounds, "rounds=") }} WHARF_CRASH_SEED={{ trim_start_match(seed, "seed=") }} \
        cargo test -p wharf-cli --test process a_turn_survives -- --nocapture

# The same with the journal in PostgreSQL, while it restarts or its connections are cut: `just crash-postgres restarts`.
crash-postgres chaos="" rounds="1000" seed="1":
    WHARF_CRASH_CHAOS={{ trim_start_match(chaos, "chaos=") }} WHARF_CRASH_SEED={{ trim_start_match(seed, "seed=") }} \
        WHARF_CRASH_ROUNDS={{ trim_start_match(rounds, "rounds=") }} \
        cargo test -p wharf-cli --test process a_turn_whose_journal -- --nocapture

# Workers that share sessions, some of which are killed: `just workers`, `just workers 200 2`.
workers sessions="200" workers="4":
    WHARF_WORK_SESSIONS={{ sessions }} WHARF_WORK_WORKERS={{ workers }} \
        cargo test -p wharf-cli --test process workers -- --nocapture

# Breaks the lines that keep the promises, one by one, and shows that a test notices: `just sabotage`, `just sabotage 4-`.
sabotage *NAMES:
    tests/sabotage/run {{ NAMES }}

# Turns under every fault of docs/fault-model.md, in virtual time: all of it, or one case (`just sim seed=123`).
sim *ARGS:
    WHARF_SIM='{{ ARGS }}' cargo test --release -p wharf-sim --test sim -- --ignored --nocapture the_whole_lane

# The figures of docs/benchmarks.md. Builds the engine in release mode: ten minutes the first time.
bench *ARGS:
    cargo run --release --manifest-path bench/Cargo.toml -- {{ ARGS }}

# All that CI does.
ci:
    .ci/run
