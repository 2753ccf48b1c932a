// This program uses types that openapi-typescript has generated from the document of the
// node at the address FORGE_NODE, with the token FORGE_TOKEN.
import createClient from "openapi-fetch";
import type { components, paths } from "./forge.js";

declare const process: { env: Record<string, string> };

const client = createClient<paths>({
  baseUrl: process.env.FORGE_NODE,
  headers: { Authorization: `Bearer ${process.env.FORGE_TOKEN}` },
});

const added = await client.POST("/api/v1/jobs", { body: { kind: "report" } });
if (!added.data) throw new Error(`enqueue: ${added.error.detail}`);
const job = await client.GET("/api/v1/jobs/{id}", { params: { path: { id: added.data.id } } });
if (job.data?.kind !== "report") throw new Error(`read the job: ${job.error?.detail}`);

const crons = await client.GET("/api/v1/crons", { params: { query: { limit: 1 } } });
const names: string[] = (crons.data?.items ?? []).map((cron) => cron.name);
if (names.join() !== "nightly") throw new Error(`list crons: ${names}`);

const plan = await client.GET("/api/v1/plan");
const changes: number = plan.data!.runs.length; // never null
if (changes !== 0) throw new Error(`plan: ${changes}`);

const refused = await client.POST("/api/v1/crons/{name}/pause", { params: { path: { name: "none" } }, body: {} });
const problem: components["schemas"]["Problem"] | undefined = refused.error;
if (problem?.status !== 404) throw new Error(`pause a cron that does not exist: ${JSON.stringify(refused)}`);
