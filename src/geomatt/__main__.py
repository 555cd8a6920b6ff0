from geomatt.cli import main

main()
