import { MANIFEST_NAME } from "./manifest.ts";
import { type MakeScaffold, scaffoldReadme as readme, wasmManifest, wasmNotes } from "./scaffold_files.ts";

/** Makes a WASM plugin in Rust. */
export const rustScaffold: MakeScaffold = (names) => ({
  [MANIFEST_NAME]: wasmManifest(names),
  "README.md": readme(names, {
    build: [
      "cargo build --release --target wasm32-unknown-unknown",
      `cp target/wasm32-unknown-unknown/release/${names.tool}.wasm plugin.wasm`,
    ],
    needs: "Rust with the target wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`)",
    notes: wasmNotes("The crate `extism-pdk`", "src/workspace.rs"),
  }),
  ".gitignore": "/target\n*.wasm\n*.tar\n",
  "Cargo.toml": `[package]
name = "${names.tool}"
version = "0.1.0"
edition = "2021"

[lib]
crate-type = ["cdylib"]

[dependencies]
extism-pdk = "1"
serde = { version = "1", features = ["derive"] }

[profile.release]
opt-level = "s"
lto = true
strip = true
`,
  "src/lib.rs": `use extism_pdk::*;
use serde::{Deserialize, Serialize};

mod workspace;

#[derive(Deserialize)]
struct Call {
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    text: String,
}

#[derive(Serialize)]
struct Answer {
    output: String,
}

#[plugin_fn]
pub fn execute(Json(call): Json<Call>) -> FnResult<Json<Answer>> {
    Ok(Json(Answer { output: call.input.text.to_uppercase() }))
}
`,
  "src/workspace.rs": `//! Functions of the workspace, for a plugin whose capabilities name it.
#![allow(dead_code)]

use extism_pdk::*;
use serde::{Deserialize, Serialize};

/// File of the workspace, with its size in bytes.
#[derive(Deserialize)]
pub struct Entry {
    pub path: String,
    pub size: u64,
}

/// Returns the text of a file, by its path relative to the workspace.
pub fn read(path: &str) -> Result<String, Error> {
    let answer: Content = answer_of(unsafe { workspace_read(Json(Place { path: path.into() })) }?)?;
    Ok(answer.content)
}

/// Returns the files in a folder and in the folders below it, "." for the workspace itself.
pub fn list(path: &str) -> Result<Vec<Entry>, Error> {
    let answer: Entries = answer_of(unsafe { workspace_list(Json(Place { path: path.into() })) }?)?;
    Ok(answer.entries)
}

/// Writes a text to a file. Returns its size in bytes.
pub fn write(path: &str, content: &str) -> Result<u64, Error> {
    let text = Text { path: path.into(), content: content.into() };
    let answer: Written = answer_of(unsafe { workspace_write(Json(text)) }?)?;
    Ok(answer.bytes)
}

#[host_fn]
extern "ExtismHost" {
    fn workspace_read(request: Json<Place>) -> Vec<u8>;
    fn workspace_list(request: Json<Place>) -> Vec<u8>;
    fn workspace_write(request: Json<Text>) -> Vec<u8>;
}

#[derive(Serialize)]
struct Place {
    path: String,
}

#[derive(Serialize)]
struct Text {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Content {
    content: String,
}

#[derive(Deserialize)]
struct Entries {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Written {
    bytes: u64,
}

#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

fn answer_of<T: serde::de::DeserializeOwned>(bytes: Vec<u8>) -> Result<T, Error> {
    if let Ok(Json(Refused { error })) = Json::<Refused>::from_bytes_owned(&bytes) {
        return Err(Error::msg(error.message));
    }
    let Json(answer) = Json::<T>::from_bytes_owned(&bytes)?;
    Ok(answer)
}
`,
});
