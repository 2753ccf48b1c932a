package main

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
)

// defaultLeaderFile is where a sidecar keeps its file.
const defaultLeaderFile = "/run/forge/leader.txt"

func (a *app) sidecarCommand() *cobra.Command {
	var flags runFlags
	var metadata string
	cmd := &cobra.Command{
		Use:   "sidecar --role NAME",
		Short: "Elect a leader for the program beside this process, which only reads a file",
		Long: "forge sidecar is a candidate for a role, for a program that cannot be one, such as another\n" +
			"container of its pod. It keeps two files. The one line of --file is the id of the leader, and\n" +
			"is empty while no leader is known. FILE.json has the term, the end of the lease and what the\n" +
			"leader's sidecar has published with --metadata. The program works while the file has the id\n" +
			"of its own sidecar. It may overlap with its predecessor for a check_interval; forge run stops\n" +
			"its command in time instead. No node needs to run.",
		Example: "  forge sidecar --role nightly --node-id \"$POD_NAME\"\n" +
			"  forge sidecar --role nightly --metadata '{\"url\": \"http://10.0.0.7:9000\"}'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if flags.metadata, err = sidecarMetadata(metadata); err != nil {
				return usageError(err)
			}
			return a.runSingleton(cmd.Context(), flags, nil)
		},
	}
	cmd.Flags().StringVar(&flags.leaderFile, "file", defaultLeaderFile, "path of the file with the leader's id; PATH.json is kept beside it")
	cmd.Flags().StringVar(&metadata, "metadata", "", "JSON object that others find in their files while this sidecar leads")
	flags.registerCandidate(cmd)
	return cmd
}

// sidecarMetadata checks the value of --metadata, which has the bounds of a job's arguments.
func sidecarMetadata(text string) (json.RawMessage, error) {
	metadata := json.RawMessage(text)
	err := config.CheckArgs(metadata)
	if wrong, ok := errors.AsType[*config.ArgsError](err); ok {
		wrong.Path = "--metadata" + strings.TrimPrefix(wrong.Path, "args")
	}
	return metadata, err
}
