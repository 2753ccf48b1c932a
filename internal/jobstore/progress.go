package jobstore

import (
	"context"
	"encoding/json"
	"fmt"
)

// The last condition refuses the progress of a stale attempt.
const setProgressSQL = `
UPDATE river_job
SET metadata = metadata || jsonb_build_object('` + KeyProgress + `', $3::text::jsonb)
WHERE id = $1 AND state = 'running' AND attempt = $4 AND ` + lastClient + ` = $2::text AND jsonb_typeof(metadata) = 'object'`

// SetProgress stores the progress of an attempt, if it still runs on this client.
func (s *Store) SetProgress(ctx context.Context, id int64, client string, progress Progress) error {
	text, err := json.Marshal(progress)
	if err == nil {
		_, err = s.db.Exec(ctx, setProgressSQL, id, client, string(text), progress.Attempt)
	}
	if err != nil {
		return fmt.Errorf("store the progress of job %d: %w", id, err)
	}
	return nil
}
