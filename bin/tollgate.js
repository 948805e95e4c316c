#!/usr/bin/env node
// Runs on any Node that knows modules, so that an old one is told in one line what is missing.
import { existsSync } from "node:fs";

const LEAST_NODE = 24;
const compiled = new URL("../dist/main.js", import.meta.url);
const source = new URL("../src/main.ts", import.meta.url);

if (Number(process.versions.node.split(".")[0]) < LEAST_NODE) {
  console.error(
    `tollgate: this is Node ${process.versions.node}; Tollgate needs Node ${LEAST_NODE} or later: https://nodejs.org/`,
  );
  process.exit(1);
}
import((existsSync(source) ? source : compiled).href);
