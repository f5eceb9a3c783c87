// Runs a test program that was built for wasm32-wasip1: `make vectors`. A panic there is a trap, and so an error here.

import { readFile } from "node:fs/promises";
import { argv, env, exit } from "node:process";
import { WASI } from "node:wasi";

const [program, ...rest] = argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...rest], env, returnOnExit: true });
const { instance } = await WebAssembly.instantiate(await readFile(program), wasi.getImportObject());
exit(wasi.start(instance));
