// Command cells takes orders of tenants whose data are in several cells. A cell is a PostgreSQL
// server with a forge cluster of its own. The order and the job that sends its receipt are
// committed together, in the cell of the tenant.
//
//	export CELLS="a=postgres://... b=postgres://..."
//	export TENANTS="acme=a globex=b"
//	go run ./examples/cells acme globex
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cells:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tenants []string) error {
	d, err := newDirectory(ctx, os.Getenv("CELLS"), os.Getenv("TENANTS"))
	if err != nil {
		return err
	}
	defer d.close()
	for _, tenant := range tenants {
		cell, err := d.cellOf(tenant)
		if err != nil {
			return err
		}
		order, job, err := placeOrder(ctx, cell.pool, tenant)
		if err != nil {
			return fmt.Errorf("place an order of %s in cell %s: %w", tenant, cell.name, err)
		}
		fmt.Printf("%s: order %d and job %d in cell %s\n", tenant, order, job, cell.name)
	}
	return nil
}

// directory says in which cell a tenant's data are. In production it is a table that all programs
// read, so that a tenant moves for all of them at once.
type directory struct {
	cells   map[string]cell
	tenants map[string]string // name of the cell by tenant
}

type cell struct {
	name string
	pool *pgxpool.Pool
}

// newDirectory reads lists like "a=postgres://... b=postgres://..." and "acme=a globex=b". It
// connects to a cell when it is used, so one that is down does not affect the others.
func newDirectory(ctx context.Context, cells, tenants string) (*directory, error) {
	d := &directory{cells: map[string]cell{}, tenants: map[string]string{}}
	for pair := range strings.FieldsSeq(cells) {
		name, url, _ := strings.Cut(pair, "=")
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("cell %s: %w", name, err)
		}
		d.cells[name] = cell{name, pool}
	}
	for pair := range strings.FieldsSeq(tenants) {
		tenant, name, _ := strings.Cut(pair, "=")
		d.tenants[tenant] = name
	}
	return d, nil
}

// cellOf returns the cell of a tenant. An unknown tenant is an error: a cell that is guessed, or
// computed from the number of cells, would change with the next cell.
func (d *directory) cellOf(tenant string) (cell, error) {
	found, ok := d.cells[d.tenants[tenant]]
	if !ok {
		return cell{}, fmt.Errorf("tenant %q has no cell", tenant)
	}
	return found, nil
}

func (d *directory) close() {
	for _, cell := range d.cells {
		cell.pool.Close()
	}
}

// placeOrder writes the order and enqueues its receipt in one transaction.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, tenant string) (order, job int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS shop_orders (id bigserial PRIMARY KEY, tenant text)`); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `INSERT INTO shop_orders (tenant) VALUES ($1) RETURNING id`, tenant).Scan(&order); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT forge_enqueue('send_receipt', jsonb_build_object('tenant', $1::text, 'order', $2::bigint))`,
			tenant, order).Scan(&job)
	})
	return order, job, err
}
