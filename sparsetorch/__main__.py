"""`python -m sparsetorch`."""

from sparsetorch.cli import main

raise SystemExit(main())
