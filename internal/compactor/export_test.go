package compactor

// OthersSQL is tried on sessions of many kinds.
const OthersSQL = othersSQL
