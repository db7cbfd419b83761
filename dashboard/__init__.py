"""The Streamlit app: ``app`` navigates, ``views`` show, ``charts`` draw, ``data`` asks the store."""
