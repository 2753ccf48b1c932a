package dashboardtest

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
)

// Options are the options with which node-1 reads and changes the cluster.
func Options(c *Cluster) cluster.Options {
	return cluster.Options{
		Source:  cluster.Source{Leadership: Leadership{Cluster: c}, Incidents: Leadership{Cluster: c}, Nodes: Nodes{Cluster: c}, Health: Health{Cluster: c}, Crons: Crons{Cluster: c}, Explain: Crons{Cluster: c}, Jobs: Jobs{Cluster: c}, Counts: Jobs{Cluster: c}, Queues: Queues{Cluster: c}, Reports: Queues{Cluster: c}, Dead: Dead{Cluster: c}, Events: Events{Cluster: c}, Activity: Activity{Cluster: c}, History: History{Cluster: c}, Alerts: Alerts{Cluster: c}, Compaction: Compaction{Cluster: c}},
		Self:    cluster.Self{Cluster: "test", NodeID: "node-1", Incarnation: Incarnation, Version: "v1", APIURL: "http://127.0.0.1:8080"},
		Roles:   TestRoles,
		Ready:   func(context.Context) error { return nil },
		CronOps: Operator{Cluster: c}, CronRunner: Operator{Cluster: c}, JobOps: Operator{Cluster: c}, Enqueuer: Operator{Cluster: c},
		QueueOps: Operator{Cluster: c}, DeadLetterOps: Dead{Cluster: c}, RoleOps: Operator{Cluster: c}, Silencer: Alerts{Cluster: c}, TokenKeeper: Keeper{Cluster: c}, SessionKeeper: Sessions{Cluster: c},
		Configs: Configs{Cluster: c},
		Doctor: func(context.Context) ([]cluster.Finding, error) {
			return Read(c, func() []cluster.Finding {
				return []cluster.Finding{{Check: "pooler", Status: "ok", Detail: "there is none"}}
			})
		},
		Settings:     func() map[string]any { return c.Settings },
		Now:          func() time.Time { return Epoch },
		CountTimeout: time.Minute, // the count takes no time here
	}
}
