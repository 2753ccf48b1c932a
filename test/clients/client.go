// This program uses a client that oapi-codegen has generated from the document of the
// node at the address FORGE_NODE, with the token FORGE_TOKEN.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := use(ctx, os.Getenv("FORGE_NODE"), os.Getenv("FORGE_TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func use(ctx context.Context, node, token string) error {
	client, err := NewClientWithResponses(node, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	return errors.Join(enqueue(ctx, client), read(ctx, client), refuse(ctx, client))
}

// enqueue adds a job and finds it.
func enqueue(ctx context.Context, client *ClientWithResponses) error {
	added, err := client.EnqueueJobWithResponse(ctx, &EnqueueJobParams{}, EnqueueJobJSONRequestBody{Kind: "report"})
	if err != nil {
		return err
	}
	if added.JSON201 == nil {
		return fmt.Errorf("enqueue: %s %s", added.Status(), added.Body)
	}
	job, err := client.GetJobWithResponse(ctx, added.JSON201.Id)
	if err != nil {
		return err
	}
	if job.JSON200 == nil || job.JSON200.Kind != "report" {
		return fmt.Errorf("read the job: %s %s", job.Status(), job.Body)
	}
	return nil
}

// read goes through a list and reads what the file would change.
func read(ctx context.Context, client *ClientWithResponses) error {
	limit := 1
	crons, err := client.ListCronsWithResponse(ctx, &ListCronsParams{Limit: &limit})
	if err != nil {
		return err
	}
	if crons.JSON200 == nil || len(crons.JSON200.Items) != 1 || crons.JSON200.Items[0].Name != "nightly" {
		return fmt.Errorf("list crons: %s %s", crons.Status(), crons.Body)
	}
	plan, err := client.GetPlanWithResponse(ctx, &GetPlanParams{})
	if err != nil {
		return err
	}
	if plan.JSON200 == nil || plan.JSON200.Runs == nil {
		return fmt.Errorf("plan: %s %s", plan.Status(), plan.Body)
	}
	return nil
}

// refuse reads why a request is refused.
func refuse(ctx context.Context, client *ClientWithResponses) error {
	paused, err := client.PauseCronWithResponse(ctx, "none", &PauseCronParams{}, PauseCronJSONRequestBody{})
	if err != nil {
		return err
	}
	if problem := paused.ApplicationproblemJSON4XX; problem == nil || problem.Status != http.StatusNotFound {
		return fmt.Errorf("pause a cron that does not exist: %s %s", paused.Status(), paused.Body)
	}
	return nil
}
