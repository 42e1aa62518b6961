"""The names of solvers in files and on the command line."""

# Every solver that a file can name: adding one is one line.
SOLVERS = {
    "ConvexProgram": "cvxmdp.solvers.convex_program",
    "PDPG": "cvxmdp.solvers.pdpg",
    "VRPDPG": "cvxmdp.solvers.vr_pdpg",
    "ColumnGeneration": "cvxmdp.solvers.column_generation",
}
