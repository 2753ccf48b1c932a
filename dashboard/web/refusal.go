package web

// RefusedError is an error whose detail is shown to the caller.
type RefusedError struct {
	Status int
	Detail string
}

func (r *RefusedError) Error() string { return r.Detail }

// Refuse returns a RefusedError.
func Refuse(status int, detail string) error { return &RefusedError{status, detail} }
