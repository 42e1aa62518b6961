"""The names of solvers in files and on the command line."""

# Every solver that a file can name: adding one is one line.
SOLVERS = {
    "ConvexProgram": "cvxmdp.exact.convex_program",
    "PDPG": "cvxmdp.exact.pdpg",
    "VRPDPG": "cvxmdp.sampling.vr_pdpg",
    "ColumnGeneration": "cvxmdp.exact.column_generation",
}
