// One process of graphile-worker in a bench, or its migrations. BENCH_GRAPHILE holds what
// it is, the JSON of graphile.Role.
import { openSync, writeSync } from "node:fs";
import { Logger, run, runMigrations } from "graphile-worker";

const role = JSON.parse(process.env.BENCH_GRAPHILE);
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const options = {
  connectionString: role.url,
  noHandleSignals: true,
  preset: { worker: { ...role.worker, logger } },
};

if (role.migrate) {
  await runMigrations(options);
  process.exit(0);
}

// The file holds the number of jobs that have begun.
function count() {
  const file = openSync(role.out, "w");
  const bytes = Buffer.alloc(8);
  let jobs = 0;
  let written = -1;
  const write = () => {
    if (written === jobs) return;
    written = jobs;
    bytes.writeBigUInt64LE(BigInt(jobs));
    writeSync(file, bytes, 0, 8, 0);
  };
  write();
  setInterval(write, 5);
  return { noop: () => void jobs++, flush: write };
}

// The file gets three numbers for each job, a rig.Start: its number, when it was due and
// when it began, in microseconds since 1970.
function starts() {
  const file = openSync(role.out, "w");
  let chunks = [];
  const flush = () => {
    if (chunks.length === 0) return;
    const all = Buffer.concat(chunks);
    chunks = [];
    writeSync(file, all);
  };
  setInterval(flush, 100);
  const noop = ({ n, due }) => {
    const bytes = Buffer.alloc(24);
    bytes.writeBigInt64LE(BigInt(n), 0);
    bytes.writeBigInt64LE(BigInt(due), 8);
    bytes.writeBigInt64LE(BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)), 16);
    chunks.push(bytes);
  };
  return { noop, flush };
}

const { noop, flush } = role.starts ? starts() : count();
const runner = await run({ ...options, taskList: { noop } });
let stopping = false;
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, async () => {
    if (stopping) return;
    stopping = true;
    await runner.stop();
    flush();
    process.exit(0);
  });
}
await runner.promise;
