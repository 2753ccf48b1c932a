package web

// Refusal is an error whose detail is shown to the caller.
type Refusal struct {
	Status int
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }
