package netguard

import "net/http"

// LimitAnswers returns a transport whose answers end with an *http.MaxBytesError after a number of
// bytes, however they are read.
func LimitAnswers(transport http.RoundTripper, most int64) http.RoundTripper {
	return limitedAnswers{transport, most}
}

type limitedAnswers struct {
	http.RoundTripper

	most int64
}

func (l limitedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, l.most)
	return answer, nil
}

// WrappedRoundTripper returns the transport. client-go cancels requests through it.
func (l limitedAnswers) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }
