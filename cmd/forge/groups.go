package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

// The help lists commands in the order in which they are added.
func init() { cobra.EnableCommandSorting = false }

// addGroups adds the commands, in the groups of the help.
func (a *app) addGroups(root *cobra.Command) {
	groups := []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"start", "Start:", []*cobra.Command{
			unixOnly(runtime.GOOS, a.devCommand()), a.initCommand(), a.checkCommand(), unixOnly(runtime.GOOS, a.serveCommand()), a.importCommand(),
		}},
		{"work", "Crons and jobs:", []*cobra.Command{a.cronCommand(), a.jobCommand(), a.queueCommand(), a.deadCommand()}},
		{"cluster", "Cluster:", []*cobra.Command{
			a.watchable(a.statusCommand()), a.watchable(a.doctorCommand()), a.leaderCommand(), a.nodeCommand(), a.drillCommand(),
			unixOnly(runtime.GOOS, a.runCommand()), a.sidecarCommand(), a.alertsCommand(), a.watchable(a.metricsCommand()), a.watchable(a.eventsCommand()),
			a.watchable(a.activityCommand()),
		}},
		{"data", "Configuration and data:", []*cobra.Command{
			a.planCommand(), a.applyCommand(), a.configCommand(), a.migrateCommand(), a.compactCommand(), a.tokenCommand(), a.sessionCommand(), a.watchable(a.auditCommand()),
		}},
		{"other", "Other:", []*cobra.Command{a.versionCommand(), a.manCommand()}},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
}

// exampleOfCompletions gives the commands that Cobra adds an example each.
func exampleOfCompletions(root *cobra.Command) {
	examples := map[string]string{
		"bash":       "  forge completion bash > /etc/bash_completion.d/forge",
		"zsh":        "  forge completion zsh > \"${fpath[1]}/_forge\"",
		"fish":       "  forge completion fish > ~/.config/fish/completions/forge.fish",
		"powershell": "  forge completion powershell | Out-String | Invoke-Expression",
	}
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	for _, shell := range completion.Commands() {
		shell.Example = examples[shell.Name()]
	}
}
